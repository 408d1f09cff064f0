import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** Runs Flink SQL as {@link Jobs} says: a file is statements, of which the last starts a job. */
public final class Sql {
    private static final String BETWEEN = ";\n";

    private Sql() {
    }

    public static void main(String[] arguments) throws Exception {
        Jobs.serve(arguments, Sql::started);
    }

    private static JobClient started(Path file, StreamExecutionEnvironment environment)
            throws IOException {
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        JobClient job = null;
        for (String statement : Files.readString(file).split(BETWEEN)) {
            job = tables.executeSql(statement).getJobClient().orElse(null);
        }
        return job;
    }
}
