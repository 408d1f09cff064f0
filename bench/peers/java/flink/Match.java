import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.datastream.BroadcastStream;
import org.apache.flink.streaming.api.datastream.DataStreamSource;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Matches the events of a topic with the rules of another one, by Flink's broadcast state pattern.
 * Runs as {@link Jobs} says: a file is properties, see {@code bench/peers/flink_match.py}.
 */
public final class Match {
    private static final String CONSUMER = "consumer.";

    private Match() {
    }

    public static void main(String[] arguments) throws Exception {
        Jobs.serve(arguments, Match::started);
    }

    private static JobClient started(Path file, StreamExecutionEnvironment environment)
            throws Exception {
        Properties job = new Properties();
        try (Reader reader = Files.newBufferedReader(file)) {
            job.load(reader);
        }
        BroadcastStream<byte[]> rules =
                records(environment, job, "rules").setParallelism(1).broadcast(MatchRules.RULES);
        records(environment, job, "events")
                .connect(rules)
                .process(new MatchRules(
                        Integer.parseInt(job.getProperty("rules.count")),
                        Boolean.parseBoolean(job.getProperty("rules.index"))))
                .sinkTo(matches(job));
        return environment.executeAsync("match");
    }

    private static DataStreamSource<byte[]> records(
            StreamExecutionEnvironment environment, Properties job, String name) {
        KafkaSourceBuilder<byte[]> source = KafkaSource.<byte[]>builder()
                .setBootstrapServers(job.getProperty("bootstrap"))
                .setGroupId(job.getProperty("group"))
                .setTopics(job.getProperty(name))
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new Bytes());
        for (String property : job.stringPropertyNames()) {
            if (property.startsWith(CONSUMER)) {
                source.setProperty(
                        property.substring(CONSUMER.length()), job.getProperty(property));
            }
        }
        return environment.fromSource(source.build(), WatermarkStrategy.noWatermarks(), name);
    }

    private static KafkaSink<byte[]> matches(Properties job) {
        return KafkaSink.<byte[]>builder()
                .setBootstrapServers(job.getProperty("bootstrap"))
                .setRecordSerializer(KafkaRecordSerializationSchema.<byte[]>builder()
                        .setTopic(job.getProperty("matches"))
                        .setValueSerializationSchema(new Bytes())
                        .build())
                .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
                .build();
    }

    /** Values as they are: the function parses them, so that events cross threads as bytes. */
    private static final class Bytes extends AbstractDeserializationSchema<byte[]>
            implements SerializationSchema<byte[]> {
        @Override
        public byte[] deserialize(byte[] value) {
            return value;
        }

        @Override
        public byte[] serialize(byte[] value) {
            return value;
        }
    }
}
