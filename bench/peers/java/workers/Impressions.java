import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;
import org.apache.avro.generic.GenericData;

/** The event: JSON to an Avro record, token by token, without a tree or a map in between. */
final class Impressions {
    /** As the lake has it: the category is in the folder's name, not in the file. */
    static final Schema SCHEMA = SchemaBuilder.record("Impression").fields()
            .requiredString("event_id")
            .name("event_time")
            .type(LogicalTypes.timestampMillis().addToSchema(Schema.create(Schema.Type.LONG)))
            .noDefault()
            .requiredString("campaign")
            .requiredLong("item_id")
            .requiredLong("position")
            .requiredBoolean("clicked")
            .requiredDouble("propensity")
            .requiredString("user_group")
            .requiredString("user_segment")
            .endRecord();

    private static final long HOUR_MS = 3_600_000;

    private final JsonFactory json = new JsonFactory();
    private final Map<String, Schema.Field> fields = new HashMap<>();
    private GenericData.Record event;
    private String category;

    Impressions() {
        SCHEMA.getFields().forEach(field -> fields.put(field.name(), field));
    }

    void read(byte[] value) throws IOException {
        event = new GenericData.Record(SCHEMA);
        try (JsonParser parser = json.createParser(value)) {
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                throw new IOException("not an object");
            }
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                parser.nextToken();
                take(name, parser);
            }
        }
    }

    private void take(String name, JsonParser parser) throws IOException {
        if (name.equals("category")) {
            category = parser.getText();
            return;
        }
        Schema.Field field = fields.get(name);
        if (field != null) {
            event.put(field.pos(), typed(field.schema().getType(), parser));
        }
    }

    private static Object typed(Schema.Type type, JsonParser parser) throws IOException {
        switch (type) {
            case LONG:
                return parser.getLongValue();
            case DOUBLE:
                return parser.getDoubleValue();
            case BOOLEAN:
                return parser.getBooleanValue();
            default:
                return parser.getText();
        }
    }

    GenericData.Record event() {
        return event;
    }

    /** Since 1970. */
    long hour() {
        return (Long) event.get(1) / HOUR_MS;
    }

    String category() {
        return category;
    }
}
