import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Runs Flink SQL as told, in a cluster inside this JVM: each line of the input is a file of
 * statements, of which the last starts a job, or {@code stop}. Answers {@code started} or
 * {@code stopped}, and ends with its input.
 *
 * <p>Arguments: the parallelism, then NAME=VALUE for each setting of Flink.
 */
public final class Sql {
    private static final int FAILED = 1;
    private static final String BETWEEN = ";\n";

    private Sql() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        // What libraries say goes there: the output is for answers.
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        JobClient job = null;
        Path file = null;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            if (line.equals("stop")) {
                String savepoint = file.resolveSibling("savepoint").toUri().toString();
                job.stopWithSavepoint(false, savepoint, SavepointFormatType.NATIVE).get();
                answers.println("stopped");
            } else {
                file = Path.of(line);
                job = started(file, arguments);
                answers.println("started");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void endOn(Throwable error) {
        if (error != null) {
            error.printStackTrace();
            Runtime.getRuntime().halt(FAILED);
        }
    }

    private static JobClient started(Path file, String[] arguments) throws IOException {
        Configuration settings = new Configuration();
        for (int number = 1; number < arguments.length; number++) {
            String[] setting = arguments[number].split("=", 2);
            settings.setString(setting[0], setting[1]);
        }
        int parallelism = Integer.parseInt(arguments[0]);
        StreamTableEnvironment tables = StreamTableEnvironment.create(
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings));
        JobClient job = null;
        for (String statement : Files.readString(file).split(BETWEEN)) {
            job = tables.executeSql(statement).getJobClient().orElse(null);
        }
        job.getJobExecutionResult().whenComplete((result, error) -> endOn(error));
        return job;
    }
}
