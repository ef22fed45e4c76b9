package kafkatest

import (
	"math/rand/v2"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Randomize sets each field that a client may set to a random value.
func Randomize(v reflect.Value, rng *rand.Rand) {
	if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
		d.Default()
	}
	for i := range v.NumField() {
		f := v.Field(i)
		switch v.Type().Field(i).Name {
		case "ClusterID", "ReplicaState", "ReplicaDirectoryID", "HighWatermark", "Version":
			continue // only brokers send these, as tags
		case "UnknownTags":
			if tags := f.Addr().Interface().(*kmsg.Tags); rng.IntN(8) == 0 {
				tags.Set(100, make([]byte, rng.IntN(3)))
			}
			continue
		}
		randomizeValue(f, rng)
	}
}

func randomizeValue(f reflect.Value, rng *rand.Rand) {
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f.SetInt(rng.Int64N(100) - 1)
	case reflect.String:
		f.SetString("some topic's name"[:rng.IntN(17)])
	case reflect.Pointer:
		if rng.IntN(2) == 0 {
			f.Set(reflect.New(f.Type().Elem()))
			randomizeValue(f.Elem(), rng)
		}
	case reflect.Array:
		for i := range f.Len() {
			f.Index(i).SetUint(uint64(rng.IntN(256)))
		}
	case reflect.Slice:
		if f.Type().Elem().Kind() == reflect.Uint8 {
			f.SetBytes(make([]byte, rng.IntN(200)))
			return
		}
		n := rng.IntN(3)
		f.Set(reflect.MakeSlice(f.Type(), n, n))
		for i := range n {
			if e := f.Index(i); e.Kind() == reflect.Struct {
				Randomize(e, rng)
			} else {
				randomizeValue(e, rng)
			}
		}
	default:
		panic(f.Kind())
	}
}
