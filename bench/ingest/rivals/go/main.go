// Command rival is a minimal ingest service on net/http, encoding/json and franz-go: the bar.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	mostBytes  = 1_000_000
	mostEvents = 1000
	deadline   = 5 * time.Second
)

var (
	errMissing = errors.New("a field is missing")
	errID      = errors.New("event_id: expected 1 to 256 characters")
	errTime    = errors.New("event_time is out of bounds")
	errAgain   = errors.New("event_id stands twice in the request")
)

type pageView struct {
	EventID    *string    `json:"event_id"`
	EventTime  *time.Time `json:"event_time"`
	Visitor    *string    `json:"visitor"`
	Page       *string    `json:"page"`
	Referrer   *string    `json:"referrer"`
	UserAgent  *string    `json:"user_agent"`
	Country    *string    `json:"country"`
	DurationMS *int64     `json:"duration_ms"`
}

type refusal struct {
	Index  int    `json:"index"`
	Detail string `json:"detail"`
}

type verdict struct {
	Accepted int       `json:"accepted"`
	Refused  []refusal `json:"refused"`
}

type service struct {
	topic, account string
	token          [sha256.Size]byte
	client         *kgo.Client
}

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("BOOTSTRAP")),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.ProducerLinger(2*time.Millisecond),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	)
	if err != nil {
		log.Fatal(err)
	}
	one := &service{
		topic:   os.Getenv("TOPIC"),
		account: os.Getenv("ACCOUNT"),
		token:   sha256.Sum256([]byte(os.Getenv("TOKEN"))),
		client:  client,
	}
	http.HandleFunc("POST /v1/topics/{topic}/events", one.events)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}

func (s *service) events(answer http.ResponseWriter, request *http.Request) {
	given := sha256.Sum256([]byte(strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")))
	if subtle.ConstantTimeCompare(given[:], s.token[:]) != 1 {
		refuse(answer, http.StatusUnauthorized, "no valid token")
		return
	}
	if request.PathValue("topic") != s.topic {
		refuse(answer, http.StatusNotFound, "no such topic")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(answer, request.Body, mostBytes))
	if err != nil {
		refuse(answer, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	texts, err := split(body)
	if err != nil {
		refuse(answer, http.StatusBadRequest, err.Error())
		return
	}
	records, refused := s.check(texts)
	within, cancel := context.WithTimeout(request.Context(), deadline)
	defer cancel()
	if err := s.client.ProduceSync(within, records...).FirstErr(); err != nil {
		refuse(answer, http.StatusServiceUnavailable, err.Error())
		return
	}
	reply(answer, http.StatusAccepted, verdict{len(records), refused})
}

func split(body []byte) (texts []json.RawMessage, err error) {
	if !bytes.HasPrefix(body, []byte("[")) {
		return []json.RawMessage{body}, nil
	}
	if err = json.Unmarshal(body, &texts); err == nil && len(texts) > mostEvents {
		err = errors.New("too many events")
	}
	return texts, err
}

func (s *service) check(texts []json.RawMessage) (records []*kgo.Record, refused []refusal) {
	latest := time.Now().Add(time.Hour)
	seen := make(map[string]struct{}, len(texts))
	headers := []kgo.RecordHeader{{Key: "account", Value: []byte(s.account)}, {Key: "project", Value: []byte("shop")}}
	refused = []refusal{}
	for index, text := range texts {
		var view pageView
		err := json.Unmarshal(text, &view)
		if err == nil {
			err = view.fault(latest)
		}
		if err == nil {
			if _, there := seen[*view.EventID]; there {
				err = errAgain
			}
		}
		if err != nil {
			refused = append(refused, refusal{index, err.Error()})
			continue
		}
		seen[*view.EventID] = struct{}{}
		records = append(records, &kgo.Record{
			Topic: s.topic, Key: []byte(*view.Visitor), Value: text, Headers: headers,
		})
	}
	return records, refused
}

var earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (v *pageView) fault(latest time.Time) error {
	switch {
	case v.EventID == nil, v.EventTime == nil, v.Visitor == nil, v.Page == nil,
		v.Referrer == nil, v.UserAgent == nil, v.Country == nil, v.DurationMS == nil:
		return errMissing
	case len(*v.EventID) < 1 || len(*v.EventID) > 256:
		return errID
	case v.EventTime.Before(earliest) || v.EventTime.After(latest):
		return errTime
	}
	return nil
}

func refuse(answer http.ResponseWriter, status int, detail string) {
	reply(answer, status, map[string]string{"detail": detail})
}

func reply(answer http.ResponseWriter, status int, document any) {
	answer.Header().Set("Content-Type", "application/json")
	answer.WriteHeader(status)
	json.NewEncoder(answer).Encode(document)
}
