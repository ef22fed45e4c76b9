package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// HeaderID carries the timer's ID.
	HeaderID = "Idempotency-Key"
	// HeaderSignature carries the result of Sign.
	HeaderSignature = "Limbo-Signature"
)

// ErrSignature is returned by [Verify] for a request that was not signed with the secret, or was
// signed too long ago.
var ErrSignature = errors.New("webhook: invalid signature")

// Sign returns the value of the header Limbo-Signature: "t=", the Unix time in seconds, ",v1=",
// and in hex the HMAC-SHA256, with the secret as its key, of that time in decimal, a dot, the
// value of Idempotency-Key, a dot, and the body.
func Sign(secret []byte, at time.Time, id string, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(digest(secret, t, id, body))
}

func digest(secret []byte, t, id string, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(t + "." + id + ".")) // it never fails
	mac.Write(body)
	return mac.Sum(nil)
}

// Verify is for receivers: it returns an error that wraps ErrSignature unless header has a
// signature of the body with the secret, made at most tolerance before or after now. A request that
// an attacker replays passes within tolerance: detect it by its Idempotency-Key, which is signed
// too.
func Verify(secret []byte, header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	t, sum, ok := strings.Cut(strings.TrimPrefix(header.Get(HeaderSignature), "t="), ",v1=")
	seconds, err := strconv.ParseInt(t, 10, 64)
	got, err2 := hex.DecodeString(sum)
	if !ok || err != nil || err2 != nil {
		return fmt.Errorf("%w: no %s header of the form t=…,v1=…", ErrSignature, HeaderSignature)
	}
	if !hmac.Equal(got, digest(secret, t, header.Get(HeaderID), body)) {
		return ErrSignature
	}
	if age := now.Sub(time.Unix(seconds, 0)).Abs(); age > tolerance {
		return fmt.Errorf("%w: it is %v old, must be at most %v", ErrSignature, age, tolerance)
	}
	return nil
}
