package checks

import (
	"context"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/longpoll"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
	"github.com/stretchr/testify/require"
)

// Every method of a zero value panics each time with a message that names the cause: none keeps
// a lock.
func TestZeroValues(t *testing.T) {
	for name, zero := range map[string]any{
		"delayqueue":  new(delayqueue.Queue[int]),
		"timingwheel": new(timingwheel.Wheel[int]),
		"keyed":       new(keyed.Table[int, int]),
		"scheduler":   new(scheduler.Scheduler),
		"purgatory":   new(purgatory.Purgatory[int]),
		"threshold":   new(purgatory.Threshold[int, int]),
		"futures":     new(purgatory.Futures[int]),
		"future":      new(purgatory.Future[int]),
		"wheel":       new(purgatory.Clock),
		"calls":       new(calls.Table[int, int]),
		"polls":       new(longpoll.Polls),
	} {
		v := reflect.ValueOf(zero)
		require.NotZero(t, v.NumMethod(), name)
		for i := range v.NumMethod() {
			method := v.Type().Method(i).Name
			t.Run(name+"."+method, func(t *testing.T) {
				t.Parallel()
				for range 2 {
					panicked := make(chan any, 1)
					go func() {
						defer func() { panicked <- recover() }()
						callZero(v.Method(i))
					}()
					select {
					case p := <-panicked:
						require.NotNil(t, p, "it does not panic")
						require.Regexp(t, "^[a-z]+: .*( zero |not created by New)", p, "the panic does not say why")
					case <-time.After(time.Minute):
						t.Fatal("it hangs")
					}
				}
			})
		}
	}
}

// callZero calls a method with suitable arguments, and loops over iterators that it returns.
func callZero(method reflect.Value) {
	var args []reflect.Value
	for i := range method.Type().NumIn() {
		if method.Type().IsVariadic() && i == method.Type().NumIn()-1 {
			break
		}
		args = append(args, argument(method.Type().In(i)))
	}
	for _, r := range method.Call(args) {
		if r.Kind() == reflect.Func && r.Type().NumIn() == 1 && r.Type().In(0).Kind() == reflect.Func {
			r.Call([]reflect.Value{argument(r.Type().In(0))})
		}
	}
}

func argument(of reflect.Type) reflect.Value {
	for _, fit := range []any{context.Background(), operation{}, daily{}, http.NewServeMux()} {
		if v := reflect.ValueOf(fit); of.Kind() == reflect.Interface && of.NumMethod() > 0 && v.Type().Implements(of) {
			return v
		}
	}
	if of == reflect.TypeFor[time.Duration]() {
		return reflect.ValueOf(time.Hour)
	}
	switch of.Kind() {
	case reflect.Func:
		return reflect.MakeFunc(of, func([]reflect.Value) (results []reflect.Value) {
			for i := range of.NumOut() {
				results = append(results, reflect.Zero(of.Out(i)))
			}
			return results
		})
	case reflect.Pointer:
		return reflect.New(of.Elem())
	}
	return reflect.Zero(of)
}

type daily struct{}

func (daily) Next(t time.Time) time.Time { return t.AddDate(0, 0, 1) }

type operation struct{}

func (operation) TryComplete() bool                 { return false }
func (operation) Complete(purgatory.Outcome, error) {}
