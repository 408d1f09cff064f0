import java.io.IOException;
import java.io.PrintStream;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.hadoop.HadoopCatalog;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.types.Types;

/**
 * The Iceberg table of a run: {@code create WAREHOUSE NAME} makes it, {@code files WAREHOUSE NAME}
 * prints the files of its current snapshot, a line each.
 */
public final class IcebergTable {
    private static final Schema IMPRESSIONS = new Schema(
            Types.NestedField.required(1, "event_id", Types.StringType.get()),
            Types.NestedField.required(2, "event_time", Types.TimestampType.withZone()),
            Types.NestedField.required(3, "category", Types.StringType.get()),
            Types.NestedField.required(4, "campaign", Types.StringType.get()),
            Types.NestedField.required(5, "item_id", Types.LongType.get()),
            Types.NestedField.required(6, "position", Types.LongType.get()),
            Types.NestedField.required(7, "clicked", Types.BooleanType.get()),
            Types.NestedField.required(8, "propensity", Types.DoubleType.get()),
            Types.NestedField.required(9, "user_group", Types.StringType.get()),
            Types.NestedField.required(10, "user_segment", Types.StringType.get()));
    private static final Map<String, String> PROPERTIES = Map.of(
            "format-version", "2",
            "write.parquet.compression-codec", "zstd",
            "write.parquet.compression-level", "1");

    private IcebergTable() {
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        // What libraries say goes there: the output is for answers.
        System.setOut(System.err);
        HadoopCatalog catalog = new HadoopCatalog(new Configuration(), arguments[1]);
        TableIdentifier name = TableIdentifier.parse(arguments[2]);
        if (arguments[0].equals("create")) {
            create(catalog, name);
        } else {
            printFiles(catalog, name, answers);
        }
    }

    private static void create(HadoopCatalog catalog, TableIdentifier name) {
        PartitionSpec hourAndCategory = PartitionSpec.builderFor(IMPRESSIONS)
                .hour("event_time")
                .identity("category")
                .build();
        catalog.createTable(name, IMPRESSIONS, hourAndCategory, PROPERTIES);
    }

    private static void printFiles(HadoopCatalog catalog, TableIdentifier name, PrintStream answers)
            throws IOException {
        try (CloseableIterable<FileScanTask> tasks = catalog.loadTable(name).newScan().planFiles()) {
            tasks.forEach(task -> answers.println(task.file().location()));
        }
    }
}
