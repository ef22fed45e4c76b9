import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** Netty's side of docs/migrating.md. */
public final class Netty {
    static void giveUp() { throw new AssertionError("stopped"); }

    public static void main(String[] args) {
        // docs/migrating
        HashedWheelTimer timer = new HashedWheelTimer(10, TimeUnit.MILLISECONDS);

        Timeout call = timer.newTimeout(timeout -> giveUp(), 5, TimeUnit.SECONDS);

        boolean stopped = call.cancel();

        Set<Timeout> left = timer.stop();
        // end
        System.out.println(stopped + " " + left);
    }
}
