import com.rtbhouse.kafka.workers.api.WorkersConfig;
import com.rtbhouse.kafka.workers.api.partitioner.WorkerSubpartition;
import com.rtbhouse.kafka.workers.api.record.RecordStatusObserver;
import com.rtbhouse.kafka.workers.api.record.WorkerRecord;
import com.rtbhouse.kafka.workers.api.task.WorkerTask;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.generic.GenericData;
import org.apache.parquet.hadoop.ParquetWriter;

/**
 * Writes JSON events to Parquet files by day, hour and category, one task a subpartition.
 *
 * <p>At least once: a record succeeds when the file that holds it is closed, and all files of a
 * task are closed together, so offsets are committed that are in closed files only.
 */
final class ParquetTask implements WorkerTask<byte[], byte[]> {
    private static final long IDLE_MS = 1000;

    private final Map<Long, Map<String, ParquetWriter<GenericData.Record>>> open = new HashMap<>();
    private final List<RecordStatusObserver> unanswered = new ArrayList<>();
    private final Impressions impressions = new Impressions();
    private ParquetFiles files;
    private int rollRecords;
    private long lastMs;

    @Override
    public void init(WorkerSubpartition subpartition, WorkersConfig config) {
        Map<String, Object> settings = config.getWorkerTaskConfigs();
        rollRecords = Integer.parseInt((String) settings.get("roll.records"));
        Path folder = Path.of((String) settings.get("folder"));
        files = new ParquetFiles(folder, subpartition.partition() + "-" + subpartition.subpartition());
    }

    @Override
    public boolean accept(WorkerRecord<byte[], byte[]> record) {
        return true;
    }

    @Override
    public void process(WorkerRecord<byte[], byte[]> record, RecordStatusObserver observer) {
        lastMs = System.currentTimeMillis();
        try {
            impressions.read(record.value());
            writer(impressions.hour(), impressions.category()).write(impressions.event());
            unanswered.add(observer);
            if (unanswered.size() >= rollRecords) {
                roll();
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Closes what is open once nothing has come for a while. */
    @Override
    public void punctuate(long now) {
        if (now - lastMs >= IDLE_MS && !unanswered.isEmpty()) {
            try {
                roll();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    /** Nothing is answered: what is in files that were not closed comes again. */
    @Override
    public void close() {
        open.clear();
        unanswered.clear();
    }

    private ParquetWriter<GenericData.Record> writer(long hour, String category) throws IOException {
        Map<String, ParquetWriter<GenericData.Record>> ofHour =
                open.computeIfAbsent(hour, any -> new HashMap<>());
        ParquetWriter<GenericData.Record> writer = ofHour.get(category);
        if (writer == null) {
            writer = files.create(hour, category);
            ofHour.put(category, writer);
        }
        return writer;
    }

    private void roll() throws IOException {
        for (Map<String, ParquetWriter<GenericData.Record>> ofHour : open.values()) {
            for (ParquetWriter<GenericData.Record> writer : ofHour.values()) {
                writer.close();
            }
        }
        open.clear();
        unanswered.forEach(RecordStatusObserver::onSuccess);
        unanswered.clear();
    }
}
