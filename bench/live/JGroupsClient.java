import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.ReceiverAdapter;

/** One member of the live benchmark on JGroups: floods, or sends at a rate.
 * Arguments: stack, size, rate (0: flood), seconds, thin (of how many latencies one is told), members, place. */
public final class JGroupsClient extends ReceiverAdapter {
    private static final int WARM_UP_BYTES = 2_000_000; // of each member, so that what is measured is compiled code

    private final AtomicLong delivered = new AtomicLong();
    private final AtomicInteger latencies = new AtomicInteger();
    private volatile int[] latenciesUs = new int[0];

    @Override
    public void receive(Message message) {
        delivered.incrementAndGet();
        int[] kept = latenciesUs;
        if (kept.length > 0) {
            long sent = ByteBuffer.wrap(message.getRawBuffer(), message.getOffset(), 8).getLong();
            if (sent == 0) return; // of the warm-up
            int index = latencies.getAndIncrement();
            if (index < kept.length) kept[index] = (int) ((System.nanoTime() - sent) / 1_000);
        }
    }

    private void run(String[] args) throws Exception {
        int size = Integer.parseInt(args[1]), rate = Integer.parseInt(args[2]), thin = Integer.parseInt(args[4]);
        int members = Integer.parseInt(args[5]), place = Integer.parseInt(args[6]);
        double seconds = Double.parseDouble(args[3]);
        PrintStream output = System.out;
        System.setOut(new PrintStream(OutputStream.nullOutputStream())); // the library greets there
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        JChannel channel = new JChannel(args[0]);
        channel.setReceiver(this);
        Thread.sleep(1_000L * place); // those who start at once may find each other only after half a minute
        channel.connect("bench");
        while (channel.getView().size() < members) Thread.sleep(20);
        for (int sent = 0; sent < WARM_UP_BYTES / size; sent++) {
            channel.send(null, null, new byte[size]);
            if (sent % 64 == 0) Thread.sleep(1); // whoever floods from the start may stall for good
        }
        Thread.sleep(2_000);
        output.println("ready");
        long start = (long) (Double.parseDouble(input.readLine()) * 1e9), end = start + (long) (seconds * 1e9);
        if (rate > 0) latenciesUs = new int[(int) (rate * seconds * members * 2)];
        while (System.nanoTime() < start) Thread.sleep(1);
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpuNs = system.getProcessCpuTime(), before = delivered.get(), sent = 0, now;
        while ((now = System.nanoTime()) < end) {
            long due = rate > 0 ? (now - start) * rate / 1_000_000_000L : sent + 64;
            for (; sent < due; sent++) {
                byte[] payload = new byte[size];
                if (rate > 0) ByteBuffer.wrap(payload).putLong(System.nanoTime());
                channel.send(null, null, payload);
            }
            if (rate > 0) Thread.sleep(0, 500_000);
        }
        cpuNs = system.getProcessCpuTime() - cpuNs;
        long count = delivered.get() - before;
        StringBuilder told = new StringBuilder();
        int[] kept = Arrays.copyOf(latenciesUs, Math.min(latencies.get(), latenciesUs.length));
        for (int index = 0; index < kept.length; index += thin) told.append(index > 0 ? ", " : "").append(kept[index]);
        String memory = Files.readString(Path.of("/proc/self/status")).replaceAll("(?s).*VmHWM:\\s*(\\d+).*", "$1");
        output.println("{\"cpu_s\": " + cpuNs / 1e9 + ", \"delivered\": " + count + ", \"sent\": " + sent
            + ", \"rss_kib\": " + memory + ", \"counts\": {}, \"latencies_us\": [" + told + "]}");
        input.readLine(); // until all are done
        Runtime.getRuntime().halt(0);
    }

    public static void main(String[] args) throws Exception {
        new JGroupsClient().run(args);
    }
}
