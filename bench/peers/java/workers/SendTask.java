import com.rtbhouse.kafka.workers.api.WorkersConfig;
import com.rtbhouse.kafka.workers.api.partitioner.WorkerSubpartition;
import com.rtbhouse.kafka.workers.api.record.RecordStatusObserver;
import com.rtbhouse.kafka.workers.api.record.WorkerRecord;
import com.rtbhouse.kafka.workers.api.task.WorkerTask;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends each record on to topic {@code worker.task.out}; it is done when that is acknowledged. */
final class SendTask implements WorkerTask<byte[], byte[]> {
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS =
            new ConcurrentHashMap<>();

    private String out;
    private KafkaProducer<byte[], byte[]> producer;

    @Override
    public void init(WorkerSubpartition subpartition, WorkersConfig config) {
        out = (String) config.getWorkerTaskConfigs().get("out");
        String bootstrap = (String) config.getWorkerTaskConfigs().get("bootstrap");
        producer = PRODUCERS.computeIfAbsent(bootstrap, SendTask::producer);
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    @Override
    public boolean accept(WorkerRecord<byte[], byte[]> record) {
        return true;
    }

    @Override
    public void process(WorkerRecord<byte[], byte[]> record, RecordStatusObserver observer) {
        producer.send(new ProducerRecord<>(out, record.value()), (metadata, error) -> {
            if (error == null) {
                observer.onSuccess();
            } else {
                observer.onFailure(error);
            }
        });
    }

    @Override
    public void punctuate(long now) {
    }

    @Override
    public void close() {
    }
}
