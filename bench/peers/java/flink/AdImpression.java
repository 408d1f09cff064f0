import java.io.IOException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;

/** An event, of which all fields are parsed: a rule may ask for any of them. */
final class AdImpression {
    private static final JsonFactory JSON = new JsonFactory();

    private String eventId;
    private long eventTime;
    private String category;
    private String campaign;
    private long itemId;
    private long position;
    private boolean clicked;
    private double propensity;
    private String userGroup;
    private String userSegment;
    private String advertiser;

    private AdImpression() {
    }

    static AdImpression parsed(byte[] json) throws IOException {
        AdImpression event = new AdImpression();
        try (JsonParser parser = JSON.createParser(json)) {
            parser.nextToken();
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                parser.nextToken();
                event.set(name, parser);
            }
        }
        return event;
    }

    private void set(String name, JsonParser parser) throws IOException {
        switch (name) {
            case "event_id" -> eventId = parser.getText();
            case "event_time" -> eventTime = parser.getLongValue();
            case "category" -> category = parser.getText();
            case "campaign" -> campaign = parser.getText();
            case "item_id" -> itemId = parser.getLongValue();
            case "position" -> position = parser.getLongValue();
            case "clicked" -> clicked = parser.getBooleanValue();
            case "propensity" -> propensity = parser.getDoubleValue();
            case "user_group" -> userGroup = parser.getText();
            case "user_segment" -> userSegment = parser.getText();
            case "advertiser" -> advertiser = parser.getText();
            default -> parser.skipChildren();
        }
    }

    /** A text, a Boolean, or a number as Double, as the values of rules are. */
    Object value(String field) {
        return switch (field) {
            case "event_id" -> eventId;
            case "event_time" -> (double) eventTime;
            case "category" -> category;
            case "campaign" -> campaign;
            case "item_id" -> (double) itemId;
            case "position" -> (double) position;
            case "clicked" -> clicked;
            case "propensity" -> propensity;
            case "user_group" -> userGroup;
            case "user_segment" -> userSegment;
            case "advertiser" -> advertiser;
            default -> throw new IllegalArgumentException(field);
        };
    }

    String eventId() {
        return eventId;
    }

    long eventTime() {
        return eventTime;
    }
}
