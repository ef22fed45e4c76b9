// Package client is a Go client of timerd's HTTP API: durable timers and schedules whose callbacks
// timerd makes. It needs only the standard library.
//
// A [Client] has one method for each request of the API. Methods take a context first, are safe
// for concurrent use, and return results and errors in two ways:
//
//   - An answer that the API foresees is a [Result], without an error: Cancel of an unknown key
//     returns [NotFound].
//   - Everything else is an [*Error] with the status, the code, the field that was out of range
//     and the message. errors.Is tells the kinds apart: [ErrNotFound], [ErrInvalid], [ErrFull],
//     [ErrUnsure] and so on.
//
// # Retries
//
// The client repeats a request after a connection error, an attempt that timed out, and the
// statuses 429, 502, 503 and 504, up to [Options].Retries times. The pauses grow exponentially
// with jitter, or are those of a Retry-After header. The client never pauses past the context's
// deadline: it returns the last error at once instead.
//
// It repeats only requests whose repetition is harmless. When the reply to a request is lost,
// the request may have been carried out, and the repetition then gets another answer. The
// receipt has Repeated set in this case:
//
//	Schedule       Replaced or Succeeds instead of Created; with IfAbsent, Exists
//	               A timer that has already run in between runs again.
//	Cancel         NotFound instead of Cancelled
//	Reset          The time counts from the repetition. Absent if the timer has ended in between.
//	Purge          Absent instead of Purged
//	PutSchedule    Unchanged instead of Created or Replaced; with IfAbsent, Exists
//	DeleteSchedule NotFound instead of Deleted; Cancelled counts only the rest
//
// A change that another client makes to the same key between the two attempts can be undone by
// the second one. Callers that cannot accept this set Retries to [NoRetries], and read the
// state of the key after [ErrUnsure].
//
// Requeue, TriggerSchedule and BackfillSchedule would make callbacks twice, so the client
// repeats them only if the request was certainly not carried out: no connection was
// established, or the status is 429. It never repeats Ping, nor a change that was made on too
// few replicas ([ErrUnconfirmed]).
package client
