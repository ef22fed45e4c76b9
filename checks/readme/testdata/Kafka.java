import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.purgatory.DelayedOperation;
import org.apache.kafka.server.purgatory.DelayedOperationPurgatory;
import org.apache.kafka.server.purgatory.TopicPartitionOperationKey;
import org.apache.kafka.server.util.timer.SystemTimer;
import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;

/** Kafka's sides of docs/migrating.md. No test compiles this file: there is no package of Kafka's jars. */
interface Partition {
    long highWatermark();
    void setHighWatermark(long offset);
    TopicPartitionOperationKey key();
}

// docs/migrating
class Produce extends DelayedOperation {
    final Partition partition;
    final long end;
    final Consumer<Errors> reply;

    Produce(Partition partition, long end, Consumer<Errors> reply) {
        super(30_000);
        this.partition = partition;
        this.end = end;
        this.reply = reply;
    }

    @Override public boolean tryComplete() {
        if (partition.highWatermark() < end) return false;
        forceComplete();
        return true;
    }

    @Override public void onComplete() {
        reply.accept(partition.highWatermark() >= end ? Errors.NONE : Errors.REQUEST_TIMED_OUT);
    }

    @Override public void onExpiration() { }
}

class Produces {
    final DelayedOperationPurgatory<Produce> waiting = new DelayedOperationPurgatory<>("Produce", 1);

    void acknowledge(Produce p) { waiting.tryCompleteElseWatch(p, List.of(p.partition.key())); }

    void replicated(Partition p, long offset) {
        p.setHighWatermark(offset);
        waiting.checkAndComplete(p.key());
    }
}
// end

class Sessions {
    volatile boolean running = true;

    void expire(String id) { }

    void run(String id) throws Exception {
        // docs/migrating
        Timer timer = new SystemTimer("sessions");
        Thread reaper = new Thread(() -> {
            try {
                while (running) timer.advanceClock(200);
            } catch (InterruptedException e) { }
        });
        reaper.start();

        TimerTask task = new TimerTask(30_000) {
            @Override public void run() { expire(id); }
        };
        timer.add(task);
        task.cancel();

        running = false;
        reaper.join();
        timer.close();
        // end
    }
}
