package group

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

// joinsWith are ways to bring a name into a group with a join.
var joinsWith = map[string]func(name string) func(*kmsg.JoinGroupRequest){
	"protocol type": func(name string) func(*kmsg.JoinGroupRequest) {
		return func(q *kmsg.JoinGroupRequest) { q.ProtocolType = name }
	},
	"first protocol": func(name string) func(*kmsg.JoinGroupRequest) {
		return kafkatest.WithProtocols(name)
	},
	"second protocol": func(name string) func(*kmsg.JoinGroupRequest) {
		return kafkatest.WithProtocols("range", name)
	},
	"instance": kafkatest.WithInstance,
}

// A name longer than a string of the log would corrupt the group's record, and the answers that
// other clients get about the group.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	for what, with := range joinsWith {
		for _, most := range []int{255, maxString - uniqueLen} {
			t.Run(fmt.Sprint(what, " of ", most), func(t *testing.T) {
				t.Parallel()
				withFixture(t, func(b *fixture) {
					for _, n := range []int{most + 1, 40_000, 3 << 16} {
						a := answered[*kmsg.JoinGroupResponse](b.send(kafkatest.Join(9, "g", "", with(strings.Repeat("x", n)))))
						kafkatest.RequireCode(t, kerr.InvalidRequest, a.ErrorCode)
					}
					join := b.send(kafkatest.Join(9, "g", "", with(strings.Repeat("x", most))))
					if what != "instance" {
						id := answered[*kmsg.JoinGroupResponse](join).MemberID
						join = b.send(kafkatest.Join(9, "g", id, with(strings.Repeat("x", most))))
					}
					b.pass(b.co.cfg.InitialRebalanceDelay + 2*fixtureTick)
					ids, generation := b.syncAll("g", []*sent{join})
					b.move(2)
					b.requireHeartbeat(nil, "g", generation, ids[0])
					list := kafkatest.ListGroups()
					list.Version = 2
					require.Len(t, answered[*kmsg.ListGroupsResponse](b.send(list)).Groups, 1)
				}, func(c *Config) { c.MaxID = most })
			})
		}
	}
}

// A record that claims more members than fit into it is ignored: decoding it would take a hundred
// times its size. The test is not parallel, because it measures allocations.
func TestGroupRecordWithoutItsMembers(t *testing.T) {
	for version := int16(0); version <= groupValueVersion; version++ {
		least := kmsg.GroupMetadataValue{Version: version, Members: make([]kmsg.GroupMetadataValueMember, 1000)}
		kept := newLiveRecords()
		kept.group("least", least.AppendTo(nil))
		require.Len(t, kept.groups["least"].Members, 1000, "version %d", version)

		const members = 1 << 20
		none := (&kmsg.GroupMetadataValue{Version: version}).AppendTo(nil)
		lies := append(binary.BigEndian.AppendUint32(none[:len(none)-4], members), make([]byte, members)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		kept.group("lies", lies)
		runtime.ReadMemStats(&after)
		require.NotContains(t, kept.groups, "lies")
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(members), "bytes")
	}
}
