// Command load sends events to an HTTP service in a closed loop: each connection sends a request,
// waits for its answer, and sends the next. It prints one line of JSON when it ends.
//
// Requests are bytes that are made once per connection, in which ids and keys are written anew,
// and answers are read with the least that HTTP allows: the machine belongs to the service.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	event = `{"event_id":"%016d","event_time":"%s","visitor":"visitor-%05d",` +
		`"page":"https://shop.example.com/de/products/outdoor/tents-and-shelters/two-person-trekking-tent-3-seasons?color=green",` +
		`"referrer":"https://www.example.org/search?q=light+trekking+tent+for+two+persons+three+seasons",` +
		`"user_agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",` +
		`"country":"DE","duration_ms":18734}`
	idAt      = len(`{"event_id":"`)
	idDigits  = 16
	keyDigits = 5
	visitors  = 50_000
)

// options are the same for every connection.
type options struct {
	address, path, token string
	events               int
	until                time.Time
}

// connection sends requests one after the other. Its request is made once.
type connection struct {
	options
	wire     net.Conn
	answers  *bufio.Reader
	request  []byte
	idsAt    []int
	keysAt   []int
	accepted []byte
	took     []time.Duration
}

// Report is what is printed. Latencies are in milliseconds, of whole requests.
type Report struct {
	Events, Requests  int
	Seconds           float64
	P50, P99, Longest float64
	CPUSeconds        float64
	EventBytes        int
}

var nextID atomic.Int64

func main() {
	url := flag.String("address", "", "host:port")
	path := flag.String("path", "/", "of the request")
	token := flag.String("token", "", "access token")
	events := flag.Int("events", 1, "in a request")
	connections := flag.Int("connections", 1, "at a time")
	seconds := flag.Float64("seconds", 5, "to send for")
	flag.Parse()
	nextID.Store(time.Now().UnixMicro())
	until := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
	report, err := run(options{*url, *path, *token, *events, until}, *connections)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(report)
}

func run(chosen options, connections int) (Report, error) {
	open := make([]*connection, connections)
	for i := range open {
		one, err := connect(chosen)
		if err != nil {
			return Report{}, err
		}
		open[i] = one
	}
	began := time.Now()
	failures := make(chan error, connections)
	var running sync.WaitGroup
	for _, one := range open {
		running.Go(func() { failures <- one.send() })
	}
	running.Wait()
	took := time.Since(began)
	close(failures)
	for err := range failures {
		if err != nil {
			return Report{}, err
		}
	}
	return summary(open, took), nil
}

func connect(chosen options) (*connection, error) {
	wire, err := net.Dial("tcp", chosen.address)
	if err != nil {
		return nil, err
	}
	one := &connection{options: chosen, wire: wire, answers: bufio.NewReader(wire)}
	one.accepted = fmt.Appendf(nil, `"accepted":%d`, chosen.events)
	body, ids := bodyOf(chosen.events)
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		chosen.path, chosen.address, chosen.token, len(body))
	one.request = append([]byte(head), body...)
	now := time.Now().UTC().Format(time.RFC3339)
	keyAt := len(`","event_time":"`) + len(now) + len(`","visitor":"visitor-`)
	for _, at := range ids {
		one.idsAt = append(one.idsAt, len(head)+at)
		one.keysAt = append(one.keysAt, len(head)+at+idDigits+keyAt)
	}
	return one, nil
}

func bodyOf(events int) (body []byte, ids []int) {
	now := time.Now().UTC().Format(time.RFC3339)
	if events > 1 {
		body = append(body, '[')
	}
	for n := range events {
		if n > 0 {
			body = append(body, ',')
		}
		ids = append(ids, len(body)+idAt)
		body = fmt.Appendf(body, event, 0, now, 0)
	}
	if events > 1 {
		body = append(body, ']')
	}
	return body, ids
}

func (c *connection) send() error {
	defer c.wire.Close()
	for time.Now().Before(c.until) {
		c.renew()
		began := time.Now()
		if _, err := c.wire.Write(c.request); err != nil {
			return err
		}
		if err := c.answer(); err != nil {
			return err
		}
		c.took = append(c.took, time.Since(began))
	}
	return nil
}

// renew gives every event an id of its own, and the next visitor.
func (c *connection) renew() {
	last := nextID.Add(int64(c.events))
	for n := range c.idsAt {
		id := last - int64(n)
		write(c.request[c.idsAt[n]:c.idsAt[n]+idDigits], id)
		write(c.request[c.keysAt[n]:c.keysAt[n]+keyDigits], id%visitors)
	}
}

func write(place []byte, number int64) {
	for i := len(place) - 1; i >= 0; i-- {
		place[i] = byte('0' + number%10)
		number /= 10
	}
}

// answer reads one: it must be a 202 that accepted every event.
func (c *connection) answer() error {
	status, err := c.answers.ReadSlice('\n')
	if err != nil {
		return err
	}
	good := bytes.HasPrefix(status, []byte("HTTP/1.1 202"))
	length := -1
	for {
		line, err := c.answers.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("content-length")) {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	if length < 0 {
		return fmt.Errorf("an answer without Content-Length")
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(c.answers, body); err != nil {
		return err
	}
	if !good || !bytes.Contains(body, c.accepted) {
		return fmt.Errorf("not accepted: %s", body[:min(len(body), 300)])
	}
	return nil
}

func summary(open []*connection, took time.Duration) Report {
	var all []time.Duration
	for _, one := range open {
		all = append(all, one.took...)
	}
	slices.Sort(all)
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	events := open[0].events
	body, _ := bodyOf(1)
	return Report{
		Events:     len(all) * events,
		Requests:   len(all),
		Seconds:    took.Seconds(),
		P50:        milliseconds(all[len(all)/2]),
		P99:        milliseconds(all[len(all)*99/100]),
		Longest:    milliseconds(all[len(all)-1]),
		CPUSeconds: float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9,
		EventBytes: len(body),
	}
}

func milliseconds(one time.Duration) float64 {
	return float64(one.Microseconds()) / 1000
}
