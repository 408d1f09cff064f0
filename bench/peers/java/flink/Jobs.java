import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Runs jobs as told, in a cluster inside this JVM: each line of the input is a file that describes
 * a job to start, or {@code stop}. Answers {@code started} or {@code stopped}, and ends with its
 * input.
 */
final class Jobs {
    private static final int FAILED = 1;

    private Jobs() {
    }

    /** Starts the job that a file describes. */
    interface Start {
        JobClient start(Path file, StreamExecutionEnvironment environment) throws Exception;
    }

    /** Arguments: the parallelism, then NAME=VALUE for each setting of Flink. */
    static void serve(String[] arguments, Start start) throws Exception {
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
                job = start.start(file, environment(arguments));
                job.getJobExecutionResult().whenComplete((result, error) -> endOn(error));
                answers.println("started");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static StreamExecutionEnvironment environment(String[] arguments) {
        Configuration settings = new Configuration();
        for (int number = 1; number < arguments.length; number++) {
            String[] setting = arguments[number].split("=", 2);
            settings.setString(setting[0], setting[1]);
        }
        int parallelism = Integer.parseInt(arguments[0]);
        return StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
    }

    private static void endOn(Throwable error) {
        if (error != null) {
            error.printStackTrace();
            Runtime.getRuntime().halt(FAILED);
        }
    }
}
