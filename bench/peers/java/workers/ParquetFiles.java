import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import org.apache.avro.generic.GenericData;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.avro.AvroParquetWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.LocalOutputFile;

/** Makes files under FOLDER/day=D/hour=H/category=C, numbered within one task. */
final class ParquetFiles {
    private static final long ROW_GROUP_BYTES = 32L << 20;
    private static final int HOURS_A_DAY = 24;

    private final Configuration hadoop = new Configuration(false);
    private final Path root;
    private final String task;
    private int count;

    ParquetFiles(Path root, String task) {
        this.root = root;
        this.task = task;
        hadoop.setInt("parquet.compression.codec.zstd.level", 1);
    }

    ParquetWriter<GenericData.Record> create(long hour, String category) throws IOException {
        LocalDate day = LocalDate.ofEpochDay(hour / HOURS_A_DAY);
        Path folder = root.resolve("day=" + day)
                .resolve("hour=" + hour % HOURS_A_DAY)
                .resolve("category=" + category);
        Files.createDirectories(folder);
        Path file = folder.resolve(task + "-" + count++ + ".parquet");
        return AvroParquetWriter.<GenericData.Record>builder(new LocalOutputFile(file))
                .withSchema(Impressions.SCHEMA)
                .withDataModel(GenericData.get())
                .withConf(hadoop)
                .withCompressionCodec(CompressionCodecName.ZSTD)
                .withRowGroupSize(ROW_GROUP_BYTES)
                // Ids never repeat: building a dictionary of them is lost work.
                .withDictionaryEncoding("event_id", false)
                .build();
    }
}
