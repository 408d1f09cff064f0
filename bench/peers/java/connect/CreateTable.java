import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.hadoop.HadoopCatalog;
import org.apache.iceberg.types.Types;

/** Creates the Iceberg table of a run: {@code CreateTable WAREHOUSE NAME}. */
public final class CreateTable {
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

    private CreateTable() {
    }

    public static void main(String[] arguments) {
        PartitionSpec hourAndCategory = PartitionSpec.builderFor(IMPRESSIONS)
                .hour("event_time")
                .identity("category")
                .build();
        HadoopCatalog catalog = new HadoopCatalog(new Configuration(), arguments[0]);
        TableIdentifier name = TableIdentifier.parse(arguments[1]);
        catalog.createTable(name, IMPRESSIONS, hourAndCategory, PROPERTIES);
    }
}
