package wire

// The layouts of the requests that this broker reads, for the guard's walk: their fields in wire
// order, with the versions that have them. Only sizes matter, so adjacent fields of fixed size are
// merged, and null and empty fields are not distinguished.

type fieldKind uint8

const (
	fixedField  fieldKind = iota // size bytes
	stringField                  // int16 length, or compact
	bytesField                   // int32 length, or compact
	arrayField                   // int32 count, or compact; each element is a struct
	plainArray                   // the same, but its elements carry no tags (numbers, strings)
)

type field struct {
	kind         fieldKind
	size         int     // of a fixedField
	since, until int16   // versions that have the field, both inclusive
	of           []field // of an array's element
}

const everAfter = 1<<15 - 1

func fixed(size int) field            { return field{kind: fixedField, size: size, until: everAfter} }
func text() field                     { return field{kind: stringField, until: everAfter} }
func blob() field                     { return field{kind: bytesField, until: everAfter} }
func array(of ...field) field         { return field{kind: arrayField, until: everAfter, of: of} }
func plain(of field) field            { return field{kind: plainArray, until: everAfter, of: []field{of}} }
func (f field) from(v int16) field    { f.since = v; return f }
func (f field) upTo(v int16) field    { f.until = v; return f }
func (f field) in(version int16) bool { return f.since <= version && version <= f.until }

// Records.
var (
	produceLayout = []field{
		text().from(3), fixed(2 + 4), // transactional id; acks, timeout
		array( // topics
			text().upTo(12), fixed(16).from(13),
			array(fixed(4), blob())),
	}
	fetchLayout = []field{
		fixed(4).upTo(14), fixed(4 + 4), // replica; max wait, min bytes
		fixed(4).from(3), fixed(1).from(4), fixed(4 + 4).from(7), // max bytes; isolation; session id, epoch
		array( // topics
			text().upTo(12), fixed(16).from(13),
			array(fixed(4), fixed(4).from(9), fixed(8), fixed(4).from(12), fixed(8).from(5), fixed(4))),
		array( // forgotten topics
			text().upTo(12), fixed(16).from(13),
			plain(fixed(4))).from(7),
		text().from(11), // rack
	}
	listOffsetsLayout = []field{
		fixed(4), fixed(1).from(2),
		array(text(), array(fixed(4), fixed(4).from(4), fixed(8), fixed(4).upTo(0))),
		fixed(4).from(10),
	}
	offsetForLeaderEpochLayout = []field{
		fixed(4).from(3), // replica
		array(text(), array(fixed(4), fixed(4).from(2), fixed(4))),
	}
	deleteRecordsLayout = []field{
		array(text(), array(fixed(4+8))), fixed(4),
	}
	initProducerIDLayout = []field{
		text(), fixed(4), fixed(8 + 2).from(3),
	}
)

// The cluster and its topics.
var (
	apiVersionsLayout = []field{
		text().from(3), text().from(3),
	}
	metadataLayout = []field{
		array(fixed(16).from(10), text()),
		fixed(1).from(4), fixed(1).from(8).upTo(10), fixed(1).from(8),
	}
	createTopicsLayout = []field{
		array(text(), fixed(4+2),
			array(fixed(4), plain(fixed(4))), // replica assignment
			array(text(), text())),           // configs
		fixed(4), fixed(1).from(1),
	}
	deleteTopicsLayout = []field{
		plain(text()).upTo(5), array(text(), fixed(16)).from(6), fixed(4),
	}
	describeConfigsLayout = []field{
		array(fixed(1), text(), plain(text())), // resources: type, name, configs asked for
		fixed(1).from(1), fixed(1).from(3),     // synonyms; documentation
	}
	alterConfigsLayout = []field{
		array(fixed(1), text(), array(text(), text())), fixed(1), // resources: type, name, configs; validate only
	}
	incrementalAlterConfigsLayout = []field{
		array(fixed(1), text(), array(text(), fixed(1), text())), fixed(1),
	}
	createPartitionsLayout = []field{
		array(text(), fixed(4), array(plain(fixed(4)))), fixed(4), fixed(1), // topics: name, count, replicas
	}
	electLeadersLayout = []field{
		fixed(1).from(1), array(text(), plain(fixed(4))), fixed(4),
	}
	alterPartitionReassignmentsLayout = []field{
		fixed(4), fixed(1).from(1),
		array(text(), array(fixed(4), plain(fixed(4)))),
	}
)

// Consumer groups.
var (
	findCoordinatorLayout = []field{
		text().upTo(3), fixed(1).from(1), plain(text()).from(4),
	}
	joinGroupLayout = []field{
		text(), fixed(4), fixed(4).from(1), // group; session timeout; rebalance timeout
		text(), text().from(5), text(), // member, instance, protocol type
		array(text(), blob()), // protocols
		text().from(8),        // reason
	}
	syncGroupLayout = []field{
		text(), fixed(4), text(), text().from(3), // group, generation, member, instance
		text().from(5), text().from(5), // protocol type and name
		array(text(), blob()), // assignments
	}
	heartbeatLayout = []field{
		text(), fixed(4), text(), text().from(3),
	}
	leaveGroupLayout = []field{
		text(), text().upTo(2),
		array(text(), text(), text().from(5)).from(3), // members: id, instance, reason
	}
	offsetDeleteLayout = []field{
		text(), array(text(), array(fixed(4))),
	}
	offsetCommitLayout = []field{
		text(), fixed(4).from(1), text().from(1), text().from(7), // group, generation, member, instance
		fixed(8).from(2).upTo(4), // retention
		array( // topics
			text().upTo(9), fixed(16).from(10),
			array(fixed(4+8), fixed(8).from(1).upTo(1), fixed(4).from(6), text())),
	}
	offsetFetchLayout = []field{
		text().upTo(7), array(text(), plain(fixed(4))).upTo(7), // one group; its topics
		array( // groups
			text(), text().from(9), fixed(4).from(9), // group, member, epoch
			array( // topics
				text().upTo(9), fixed(16).from(10),
				plain(fixed(4)))).from(8),
		fixed(1).from(7),
	}
	describeGroupsLayout = []field{
		plain(text()), fixed(1).from(3),
	}
	listGroupsLayout = []field{
		plain(text()).from(4), plain(text()).from(5), // states; types
	}
	deleteGroupsLayout = []field{
		plain(text()),
	}
)
