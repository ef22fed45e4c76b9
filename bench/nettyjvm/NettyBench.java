import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Netty's own HashedWheelTimer under W1, W2, W3 and W5, with the same
 * parameters, delays and set-up as the rivals in Go. It prints the same JSON, but
 * without allocs_per_op, as the JVM does not count allocations.
 *
 * <pre>java -cp netty-common.jar:jctools-core.jar NettyBench.java W1 pending=1000000 goroutines=1</pre>
 */
public final class NettyBench {
    static final TimerTask NOTHING = timeout -> { };
    static final Map<String, Long> params = new LinkedHashMap<>();
    static final Map<String, Double> metrics = new LinkedHashMap<>();
    static String quantiles = "";

    public static void main(String[] args) throws Exception {
        Map<String, Long> all = new LinkedHashMap<>(Map.of("seed", 1L, "quick", 0L, "slack", 1L));
        for (int i = 1; i < args.length; i++) {
            String[] pair = args[i].split("=");
            all.put(pair[0], Long.parseLong(pair[1]));
            if (!Arrays.asList("seed", "quick", "slack").contains(pair[0])) {
                params.put(pair[0], all.get(pair[0]));
            }
        }
        Rng rng = new Rng(all.get("seed"));
        boolean quick = all.get("quick") != 0;
        HashedWheelTimer timer = new HashedWheelTimer(1, TimeUnit.MILLISECONDS, 1 << 16);
        timer.start();
        boolean inTime = true;
        switch (args[0]) {
            case "W1": startStop(timer, rng, quick); break;
            case "W2": holdAndStop(timer, rng, quick); break;
            case "W3": inTime = fire(timer, rng, all.get("slack")); break;
            case "W5": idle(timer); break;
            default: throw new IllegalArgumentException("no workload " + args[0] + " here");
        }
        String head = "{\"workload\":\"" + args[0] + "\",\"impl\":\"netty-jvm\",\"params\":" + json(params);
        System.out.println(inTime
            ? head + ",\"metrics\":" + json(metrics) + quantiles + "}"
            : head + ",\"metrics\":{},\"too_slow\":true}");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** SplitMix64, as in rng.go. */
    static final class Rng {
        long state;
        Rng(long seed) { state = seed; }

        long next() {
            state += 0x9e3779b97f4a7c15L;
            long z = state;
            z = (z ^ z >>> 30) * 0xbf58476d1ce4e5b9L;
            z = (z ^ z >>> 27) * 0x94d049bb133111ebL;
            return z ^ z >>> 31;
        }

        long below(long n) { return (next() >>> 32) * n >>> 32; }
        long longDelayMicros() { return 60_000_000L + below(3_540_000_000L); }
        long shortDelayMicros() { return 1_000_000L + below(30_000_000L); }

        int[] shuffled(int n) {
            int[] p = new int[n];
            for (int i = 0; i < n; i++) {
                int j = (int) below(i + 1);
                p[i] = p[j];
                p[j] = i;
            }
            return p;
        }
    }

    static Timeout[] hold(HashedWheelTimer timer, int n, Rng rng) throws Exception {
        Timeout[] held = new Timeout[n];
        for (int i = 0; i < n; i++) {
            held[i] = timer.newTimeout(NOTHING, rng.longDelayMicros(), TimeUnit.MICROSECONDS);
        }
        waitPlaced(n);
        return held;
    }

    /** The worker takes over at most 100,000 in a tick. */
    static void waitPlaced(int n) throws Exception { Thread.sleep(20 + n / 50_000); }

    static void startStop(HashedWheelTimer timer, Rng rng, boolean quick) throws Exception {
        int threads = params.get("goroutines").intValue();
        Timeout[] held = hold(timer, params.get("pending").intValue(), new Rng(rng.state));
        // Longer than on the Go side, for the JIT.
        long warm = quick ? 300_000_000L : 3_000_000_000L;
        long span = quick ? 200_000_000L : 1_000_000_000L;
        System.gc();
        long[] ops = new long[threads * 8];
        CountDownLatch ready = new CountDownLatch(threads), begin = new CountDownLatch(1), done = new CountDownLatch(threads);
        for (int g = 0; g < threads; g++) {
            Rng own = new Rng(rng.state ^ (long) (g + 1) << 32);
            int at = g * 8;
            new Thread(() -> {
                spin(timer, own, warm);
                ready.countDown();
                await(begin);
                ops[at] = spin(timer, own, span);
                done.countDown();
            }).start();
        }
        ready.await();
        long start = System.nanoTime();
        begin.countDown();
        done.await();
        long wall = System.nanoTime() - start;
        metrics.put("ns_per_op", (double) wall / Arrays.stream(ops).sum());
        if (held.length > 0 && held[held.length - 1] == null) {
            throw new AssertionError(); // keeps them alive
        }
    }

    static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static long spin(HashedWheelTimer timer, Rng rng, long span) {
        long n = 0;
        for (long end = System.nanoTime() + span; n == 0 || System.nanoTime() < end; n += 256) {
            for (int i = 0; i < 256; i++) {
                timer.newTimeout(NOTHING, rng.shortDelayMicros(), TimeUnit.MICROSECONDS).cancel();
            }
        }
        return n;
    }

    static void holdAndStop(HashedWheelTimer timer, Rng rng, boolean quick) throws Exception {
        int n = params.get("timers").intValue();
        int[] order = rng.shuffled(n);
        spin(timer, new Rng(7), quick ? 300_000_000L : 3_000_000_000L); // the JIT
        Thread.sleep(50);
        long before = liveHeap();
        long start = System.nanoTime();
        Timeout[] held = new Timeout[n];
        for (int i = 0; i < n; i++) {
            held[i] = timer.newTimeout(NOTHING, rng.longDelayMicros(), TimeUnit.MICROSECONDS);
        }
        metrics.put("start_ns", (double) (System.nanoTime() - start) / n);
        waitPlaced(n);
        long peak = liveHeap() - before;
        long[] collections = new long[3];
        for (int i = 0; i < 3; i++) {
            start = System.nanoTime();
            System.gc();
            collections[i] = System.nanoTime() - start;
        }
        Arrays.sort(collections);
        start = System.nanoTime();
        for (int i : order) {
            held[i].cancel();
        }
        metrics.put("stop_ns", (double) (System.nanoTime() - start) / n);
        metrics.put("bytes_per_timer", (double) peak / n);
        metrics.put("gc_ms", collections[1] / 1e6);
        held = null;
        long kept = Long.MAX_VALUE;
        for (int i = 0; i < 15; i++) { // until it no longer shrinks
            Thread.sleep(100);
            long now = liveHeap() - before;
            boolean stable = kept - now <= peak / 100;
            kept = now;
            if (stable) {
                break;
            }
        }
        metrics.put("bytes_after", (double) Math.max(0, kept));
        if (order.length != n) {
            throw new AssertionError(); // keeps it alive
        }
    }

    static long liveHeap() {
        System.gc();
        System.gc();
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    static final long NOT_FIRED = Long.MIN_VALUE;

    static boolean fire(HashedWheelTimer timer, Rng rng, long slack) throws Exception {
        int n = params.get("timers").intValue();
        for (int i = 0; i < 100_000; i++) { // the JIT
            timer.newTimeout(NOTHING, rng.below(200_000), TimeUnit.MICROSECONDS);
        }
        Thread.sleep(300);
        long gap = 4_000;
        long lead = slack * (300_000_000L + n * 3_000L);
        AtomicLongArray late = new AtomicLongArray(n);
        for (int i = 0; i < n; i++) {
            late.set(i, NOT_FIRED);
        }
        int[] order = rng.shuffled(n);
        Timeout[] held = new Timeout[n];
        long base = System.nanoTime();
        for (int id : order) {
            long due = base + lead + id * gap;
            held[id] = timer.newTimeout(t -> late.set(id, System.nanoTime() - due), due - System.nanoTime(), TimeUnit.NANOSECONDS);
        }
        waitPlaced(n);
        if (System.nanoTime() - base > lead - 30_000_000L) {
            return false;
        }
        Thread.sleep(Math.max(0, (base + lead - 20_000_000L - System.nanoTime()) / 1_000_000));
        long before = cpu();
        Thread.sleep(Math.max(0, (base + lead + n * gap - System.nanoTime()) / 1_000_000));
        for (int i = 0; i < n; i++) {
            while (late.get(i) == NOT_FIRED) {
                Thread.sleep(10);
            }
        }
        metrics.put("cpu_ns_per_timer", (double) (cpu() - before) / n);
        long[] all = new long[n];
        for (int i = 0; i < n; i++) {
            all[i] = late.get(i);
        }
        Arrays.sort(all);
        metrics.put("early", (double) Arrays.stream(all).filter(l -> l < 0).count());
        metrics.put("late_p50_ms", at(all, .5));
        metrics.put("late_p99_ms", at(all, .99));
        metrics.put("late_max_ms", at(all, 1));
        double[] points = {0, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .98, .99, .995, .998, .999, .9995, .9998, .9999, 1};
        quantiles = Arrays.stream(points).mapToObj(q -> number(at(all, q))).collect(Collectors.joining(",", ",\"quantiles\":[", "]"));
        return true;
    }

    static double at(long[] sorted, double q) { return sorted[(int) (q * (sorted.length - 1))] / 1e6; }

    static void idle(HashedWheelTimer timer) throws Exception {
        Timeout held = timer.newTimeout(NOTHING, 10, TimeUnit.MINUTES);
        System.gc();
        Thread.sleep(500);
        long cpu = cpu(), switches = switches();
        Thread.sleep(5_000);
        metrics.put("cpu_ms", (cpu() - cpu) / 1e6);
        metrics.put("wakeups", (double) (switches() - switches));
        held.cancel();
    }

    /** The process's, user and system, in nanoseconds. */
    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** Voluntary context switches of all threads, as getrusage's. */
    static long switches() throws Exception {
        long sum = 0;
        try (Stream<Path> tasks = Files.list(Path.of("/proc/self/task"))) {
            for (Path task : (Iterable<Path>) tasks::iterator) {
                for (String line : Files.readAllLines(task.resolve("status"))) {
                    if (line.startsWith("voluntary_ctxt_switches:")) {
                        sum += Long.parseLong(line.substring(line.indexOf(':') + 1).trim());
                    }
                }
            }
        }
        return sum;
    }

    static String json(Map<String, ? extends Number> m) {
        return m.entrySet().stream().map(e -> "\"" + e.getKey() + "\":" + number(e.getValue().doubleValue()))
            .collect(Collectors.joining(",", "{", "}"));
    }

    static String number(double x) {
        return x == Math.rint(x) ? String.valueOf((long) x) : String.format(Locale.ROOT, "%.4f", x);
    }
}
