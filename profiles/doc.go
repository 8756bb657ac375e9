// Package profiles holds what a site knows and a machine cannot say: fabric
// profiles (link layer, QoS plan, expectations) and workload profiles (slots,
// binding, launcher options), written in TOML. It knows the schema, the
// built-ins, the search order and how later files are merged over earlier
// ones; it never looks at a machine.
//
//	p, err := profiles.Load(dirs, "roce-dscp26")
package profiles
