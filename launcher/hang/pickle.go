package hang

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
)

// unpickle reads a pickle of plain values: None, booleans, numbers, strings,
// tuples, lists and dictionaries with strings as keys. A pickle is a program
// (Python's Lib/pickletools.py describes it); those of its instructions that
// import, call or build anything are not known here, so that nothing is run.
//
// Lists are shared by reference as the pickle has them, so that a small file
// cannot become a large value; one that holds itself is refused.
func unpickle(text []byte) (any, error) {
	u := unpickler{text: text, memo: map[uint32]any{}}
	for steps := 0; ; steps++ {
		op, err := u.byte()
		if err != nil {
			return nil, err
		}
		if op == '.' {
			v, err := u.pop()
			if err != nil {
				return nil, err
			}
			return plain(v, 0, new(int))
		}
		if err := u.step(op); err != nil {
			return nil, fmt.Errorf("byte %d: %w", u.at-1, err)
		}
		if len(u.stack) > maxPickle || len(u.memo) > maxPickle {
			return nil, errTooLarge
		}
	}
}

const (
	maxPickle = 1 << 22 // values
	maxDepth  = 32
)

var (
	errCut      = errors.New("the pickle is cut off")
	errTooLarge = errors.New("the pickle is too large")
)

// list and dict are values that later instructions may still add to.
type (
	list  struct{ items []any }
	tuple []any
	dict  struct{ keys, values []any }
	mark  struct{}
)

type unpickler struct {
	text  []byte
	at    int
	stack []any
	memo  map[uint32]any
}

func (u *unpickler) byte() (byte, error) {
	b, err := u.bytes(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

func (u *unpickler) bytes(n uint64) ([]byte, error) {
	if n > uint64(len(u.text)-u.at) {
		return nil, errCut
	}
	b := u.text[u.at : u.at+int(n)]
	u.at += int(n)
	return b, nil
}

// number reads a little-endian number of some bytes.
func (u *unpickler) number(size int) (uint64, error) {
	b, err := u.bytes(uint64(size))
	if err != nil {
		return 0, err
	}
	var n [8]byte
	copy(n[:], b)
	return binary.LittleEndian.Uint64(n[:]), nil
}

func (u *unpickler) push(v any) error {
	u.stack = append(u.stack, v)
	return nil
}

func (u *unpickler) pop() (any, error) {
	if len(u.stack) == 0 {
		return nil, errors.New("nothing on the stack")
	}
	v := u.stack[len(u.stack)-1]
	u.stack = u.stack[:len(u.stack)-1]
	if _, is := v.(mark); is {
		return nil, errors.New("a mark where a value should be")
	}
	return v, nil
}

// top is the value below what was popped.
func (u *unpickler) top() any {
	if len(u.stack) == 0 {
		return nil
	}
	return u.stack[len(u.stack)-1]
}

// toMark pops everything above the last mark, and the mark.
func (u *unpickler) toMark() ([]any, error) {
	for i := len(u.stack) - 1; i >= 0; i-- {
		if _, is := u.stack[i].(mark); is {
			items := append([]any(nil), u.stack[i+1:]...)
			u.stack = u.stack[:i]
			return items, nil
		}
	}
	return nil, errors.New("no mark on the stack")
}

func (u *unpickler) text8(size int) error {
	n, err := u.number(size)
	if err != nil {
		return err
	}
	b, err := u.bytes(n)
	if err != nil {
		return err
	}
	return u.push(string(b))
}

func (u *unpickler) popped(n int) ([]any, error) {
	out := make([]any, n)
	for i := n - 1; i >= 0; i-- {
		v, err := u.pop()
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// step does one instruction, by the names of pickletools.
func (u *unpickler) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		_, err := u.byte()
		return err
	case 0x95: // FRAME
		_, err := u.bytes(8)
		return err
	case '(': // MARK
		return u.push(mark{})
	case '0': // POP
		_, err := u.pop()
		return err
	case 'N': // NONE
		return u.push(nil)
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		return u.push(op == 0x88)
	case 'J': // BININT
		n, err := u.number(4)
		if err != nil {
			return err
		}
		return u.push(int64(int32(uint32(n))))
	case 'K', 'M': // BININT1, BININT2
		n, err := u.number(map[byte]int{'K': 1, 'M': 2}[op])
		if err != nil {
			return err
		}
		return u.push(int64(n))
	case 0x8a: // LONG1
		size, err := u.byte()
		if err != nil {
			return err
		}
		b, err := u.bytes(uint64(size))
		if err != nil {
			return err
		}
		return u.push(long(b))
	case 'G': // BINFLOAT
		b, err := u.bytes(8)
		if err != nil {
			return err
		}
		return u.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	case 0x8c: // SHORT_BINUNICODE
		return u.text8(1)
	case 'X': // BINUNICODE
		return u.text8(4)
	case 0x8d: // BINUNICODE8
		return u.text8(8)
	case ']': // EMPTY_LIST
		return u.push(&list{})
	case '}': // EMPTY_DICT
		return u.push(&dict{})
	case ')': // EMPTY_TUPLE
		return u.push(tuple{})
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		items, err := u.popped(int(op-0x85) + 1)
		if err != nil {
			return err
		}
		return u.push(tuple(items))
	case 't': // TUPLE
		items, err := u.toMark()
		if err != nil {
			return err
		}
		return u.push(tuple(items))
	case 'a': // APPEND
		v, err := u.pop()
		if err != nil {
			return err
		}
		return u.add(v)
	case 'e': // APPENDS
		items, err := u.toMark()
		if err != nil {
			return err
		}
		return u.add(items...)
	case 's': // SETITEM
		items, err := u.popped(2)
		if err != nil {
			return err
		}
		return u.set(items)
	case 'u': // SETITEMS
		items, err := u.toMark()
		if err != nil {
			return err
		}
		return u.set(items)
	case 'q', 'r': // BINPUT, LONG_BINPUT
		n, err := u.number(map[byte]int{'q': 1, 'r': 4}[op])
		if err != nil {
			return err
		}
		return u.keep(uint32(n))
	case 0x94: // MEMOIZE
		return u.keep(uint32(len(u.memo)))
	case 'h', 'j': // BINGET, LONG_BINGET
		n, err := u.number(map[byte]int{'h': 1, 'j': 4}[op])
		if err != nil {
			return err
		}
		v, ok := u.memo[uint32(n)]
		if !ok {
			return fmt.Errorf("no value %d was kept", n)
		}
		return u.push(v)
	}
	return fmt.Errorf("instruction %#02x is none of plain values", op)
}

func (u *unpickler) keep(n uint32) error {
	v := u.top()
	if _, is := v.(mark); is || len(u.stack) == 0 {
		return errors.New("nothing to keep")
	}
	u.memo[n] = v
	return nil
}

func (u *unpickler) add(items ...any) error {
	l, ok := u.top().(*list)
	if !ok {
		return errors.New("no list to add to")
	}
	l.items = append(l.items, items...)
	return nil
}

func (u *unpickler) set(items []any) error {
	d, ok := u.top().(*dict)
	if !ok || len(items)%2 != 0 {
		return errors.New("no dictionary to add to")
	}
	for i := 0; i < len(items); i += 2 {
		d.keys, d.values = append(d.keys, items[i]), append(d.values, items[i+1])
	}
	return nil
}

// long is Python's number of any size: little-endian, two's complement.
func long(b []byte) any {
	be := make([]byte, len(b))
	for i, x := range b {
		be[len(b)-1-i] = x
	}
	n := new(big.Int).SetBytes(be)
	if len(b) > 0 && b[len(b)-1]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	if !n.IsInt64() {
		return nil
	}
	return n.Int64()
}

// plain makes the values of JSON of what was read.
func plain(v any, depth int, count *int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("the pickle is nested too deeply, or holds itself")
	}
	if *count++; *count > maxPickle {
		return nil, errTooLarge
	}
	all := func(items []any) (any, error) {
		out := make([]any, 0, len(items))
		for _, item := range items {
			p, err := plain(item, depth+1, count)
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
		return out, nil
	}
	switch v := v.(type) {
	case *list:
		return all(v.items)
	case tuple:
		return all(v)
	case *dict:
		out := make(map[string]any, len(v.keys))
		for i, k := range v.keys {
			name, ok := k.(string)
			if !ok {
				continue
			}
			p, err := plain(v.values[i], depth+1, count)
			if err != nil {
				return nil, err
			}
			out[name] = p
		}
		return out, nil
	}
	return v, nil
}
