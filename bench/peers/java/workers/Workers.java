import com.rtbhouse.kafka.workers.api.KafkaWorkers;
import com.rtbhouse.kafka.workers.api.WorkersConfig;
import com.rtbhouse.kafka.workers.api.partitioner.RoundRobinPartitioner;
import com.rtbhouse.kafka.workers.api.task.WorkerTask;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

/**
 * Runs Kafka Workers as told: each line of the input is a file of its properties, to start with, or
 * {@code stop}. Answers {@code started} or {@code stopped}, and ends with its input.
 *
 * <p>{@code worker.task.name} is {@code parquet}, {@code record} or {@code send}, {@code
 * worker.task.lanes} the subpartitions of a partition.
 */
public final class Workers {
    private static final int FAILED = 1;

    private Workers() {
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        // What libraries say goes there: the output is for answers.
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        KafkaWorkers<byte[], byte[]> running = null;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            if (line.equals("stop")) {
                running.shutdown();
                answers.println("stopped");
            } else {
                running = started(Path.of(line));
                answers.println("started");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static KafkaWorkers<byte[], byte[]> started(Path file) throws IOException {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(file)) {
            properties.load(reader);
        }
        int lanes = Integer.parseInt(properties.getProperty("worker.task.lanes"));
        KafkaWorkers<byte[], byte[]> workers = new KafkaWorkers<>(
                new WorkersConfig(properties), Workers::task, new RoundRobinPartitioner<>(lanes),
                Workers::failed);
        workers.start();
        return workers;
    }

    private static WorkerTask<byte[], byte[]> task(WorkersConfig config) {
        return switch ((String) config.getWorkerTaskConfigs().get("name")) {
            case "parquet" -> new ParquetTask();
            case "send" -> new SendTask();
            default -> new RecordTask();
        };
    }

    /** Also called on a shutdown that was asked for, then without an exception. */
    private static void failed(Exception error) {
        if (error != null) {
            error.printStackTrace();
            Runtime.getRuntime().halt(FAILED);
        }
    }
}
