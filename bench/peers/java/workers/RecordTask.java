import com.rtbhouse.kafka.workers.api.WorkersConfig;
import com.rtbhouse.kafka.workers.api.partitioner.WorkerSubpartition;
import com.rtbhouse.kafka.workers.api.record.RecordStatusObserver;
import com.rtbhouse.kafka.workers.api.record.WorkerRecord;
import com.rtbhouse.kafka.workers.api.task.WorkerTask;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Works on one record at a time: a call answered later by another thread, or time of the CPU.
 *
 * <p>{@code worker.task.work} is {@code call} or {@code cpu}, {@code worker.task.work.us} its length
 * in microseconds. While a call is under way its subpartition accepts no other record, which is what
 * keeps records of a subpartition in order.
 */
final class RecordTask implements WorkerTask<byte[], byte[]> {
    private static final ScheduledExecutorService ANSWERS =
            Executors.newSingleThreadScheduledExecutor(RecordTask::daemon);
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private volatile boolean waiting;
    private boolean call;
    private long workMicros;

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work, "answers");
        thread.setDaemon(true);
        return thread;
    }

    @Override
    public void init(WorkerSubpartition subpartition, WorkersConfig config) {
        call = "call".equals(config.getWorkerTaskConfigs().get("work"));
        workMicros = Long.parseLong((String) config.getWorkerTaskConfigs().get("work.us"));
    }

    @Override
    public boolean accept(WorkerRecord<byte[], byte[]> record) {
        return !waiting;
    }

    @Override
    public void process(WorkerRecord<byte[], byte[]> record, RecordStatusObserver observer) {
        if (call) {
            waiting = true;
            ANSWERS.schedule(() -> answer(observer), workMicros, TimeUnit.MICROSECONDS);
        } else {
            burn();
            observer.onSuccess();
        }
    }

    private void answer(RecordStatusObserver observer) {
        observer.onSuccess();
        waiting = false;
    }

    private void burn() {
        long until = THREADS.getCurrentThreadCpuTime() + TimeUnit.MICROSECONDS.toNanos(workMicros);
        while (THREADS.getCurrentThreadCpuTime() < until) {
            Thread.onSpinWait();
        }
    }

    @Override
    public void punctuate(long now) {
    }

    @Override
    public void close() {
    }
}
