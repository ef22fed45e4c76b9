"""Drives kafka-python: see program_test.go for what each verb does."""

import sys
import threading
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic


def say(line):
    print(line, flush=True)


def check(response):
    """kafka-python leaves some errors in the response."""
    for row in getattr(response, "resources", []) or getattr(response, "topic_errors", []):
        code = next(field for field in row if isinstance(field, int))
        assert code == 0, response


def connected(client, *args, **options):
    """kafka-python 2.0 fails if it loses a connection on which it asks for a broker's version."""
    while True:
        try:
            return client(*args, **options)
        except ValueError as e:
            if "Invalid file object" not in str(e):
                raise


def admin(addrs, topic):
    client = connected(KafkaAdminClient, bootstrap_servers=addrs, api_version_auto_timeout_ms=60000)
    check(client.create_topics([NewTopic(topic, 4, 3, topic_configs={"retention.ms": "3600000"})]))
    say("create")

    # Any broker may be asked, and each learns of a decision by itself, soon after it.
    for _ in range(400):
        listed = [t for t in client.describe_topics() if t["topic"] == topic]
        if len(listed) == 1 and len(listed[0]["partitions"]) == 4:
            break
        time.sleep(0.05)
    else:
        raise AssertionError(listed)
    say("list")

    def setting(name, want):
        for _ in range(400):
            rows = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: None})])
            values = {entry[0]: entry[1] for row in rows for resource in row.resources for entry in resource[4]}
            if values == {name: want}:
                return
            time.sleep(0.05)
        raise AssertionError(values)

    setting("retention.ms", "3600000")
    say("settings")
    check(client.create_partitions({topic: NewPartitions(6)}))
    say("grow")
    check(client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.bytes": "1000000"})]))
    setting("retention.bytes", "1000000")
    say("alter")
    check(client.delete_topics([topic]))
    say("delete")
    client.close()


def produce(addrs, topic, codecs):
    producers = [
        connected(
            KafkaProducer,
            bootstrap_servers=addrs,
            api_version_auto_timeout_ms=60000,
            acks="all",
            retries=1000,
            request_timeout_ms=5000,
            compression_type=None if codec == "none" else codec,
        )
        for codec in codecs.split(",")
    ]
    for n, line in enumerate(sys.stdin):
        value = line.rstrip("\n")
        producers[n % len(producers)].send(topic, value.encode()).get(timeout=60)
        say(value)
    for producer in producers:
        producer.close()


def consume(addrs, topic, n):
    consumer = connected(KafkaConsumer, bootstrap_servers=addrs, api_version_auto_timeout_ms=60000, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    for _ in range(int(n)):
        say(next(consumer).value.decode())
    consumer.close()


def member(addrs, topic, group):
    consumer = connected(
        KafkaConsumer,
        topic,
        bootstrap_servers=addrs,
        api_version_auto_timeout_ms=60000,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        session_timeout_ms=3000,
        heartbeat_interval_ms=1000,
        request_timeout_ms=20000,
        max_poll_interval_ms=10000,
    )
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                say(record.value.decode())
    consumer.close()


verb, addrs, *rest = sys.argv[1:]
{"admin": admin, "produce": produce, "consume": consume, "member": member}[verb](addrs.split(","), *rest)
