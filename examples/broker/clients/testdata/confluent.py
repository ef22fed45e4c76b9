"""Drives confluent-kafka-python, which is librdkafka: see program_test.go for what each verb does."""

import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic


def say(line):
    print(line, flush=True)


def admin(addrs, topic):
    client = AdminClient({"bootstrap.servers": addrs})

    def done(futures):
        return [future.result(30) for future in futures.values()]

    done(client.create_topics([NewTopic(topic, 4, 3, config={"retention.ms": "3600000"})]))
    say("create")

    # Any broker may be asked, and each learns of a decision by itself, soon after it.
    for _ in range(400):
        listed = client.list_topics(topic, timeout=30).topics[topic]
        if len(listed.partitions) == 4:
            break
        time.sleep(0.05)
    else:
        raise AssertionError(listed.partitions)
    say("list")

    def setting(name, want):
        for _ in range(400):
            (entries,) = done(client.describe_configs([ConfigResource("topic", topic)]))
            if entries[name].value == want:
                return
            time.sleep(0.05)
        raise AssertionError(entries[name])

    setting("retention.ms", "3600000")
    say("settings")
    done(client.create_partitions([NewPartitions(topic, 6)]))
    say("grow")
    done(client.alter_configs([ConfigResource("topic", topic, set_config={"retention.bytes": "1000000"})]))
    setting("retention.bytes", "1000000")
    say("alter")
    done(client.delete_topics([topic]))
    say("delete")


def produce(addrs, topic, codecs):
    producers = [
        Producer({"bootstrap.servers": addrs, "enable.idempotence": True, "compression.codec": codec, "linger.ms": 0})
        for codec in codecs.split(",")
    ]

    def delivered(err, message):
        if err is not None:
            raise KafkaException(err)
        say(message.value().decode())

    for n, line in enumerate(sys.stdin):
        producer = producers[n % len(producers)]
        producer.produce(topic, line.rstrip("\n").encode(), on_delivery=delivered)
        producer.flush()


def values(consumer):
    """Values, and None where there is none yet."""
    while True:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:  # librdkafka tries again by itself
            yield None
        else:
            yield message.value().decode()


def consume(addrs, topic, n):
    consumer = Consumer({"bootstrap.servers": addrs, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    left = int(n)
    for value in values(consumer):
        if value is not None:
            say(value)
            left -= 1
        if left == 0:
            break
    consumer.close()


def member(addrs, topic, group):
    consumer = Consumer(
        {
            "bootstrap.servers": addrs,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 1000,
        }
    )
    consumer.subscribe([topic])
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    for value in values(consumer):
        if value is not None:
            say(value)
        if ended.is_set():
            break
    consumer.close()


verb, addrs, *rest = sys.argv[1:]
{"admin": admin, "produce": produce, "consume": consume, "member": member}[verb](addrs, *rest)
