package launcher

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"testing"

	"fabrun/testdata/wait"
)

func TestPumpPassesEveryByteOn(t *testing.T) {
	text := make([]byte, 3<<20)
	if _, err := rand.Read(text); err != nil {
		t.Fatal(err)
	}
	var to, read bytes.Buffer
	p, err := NewPump(&to, &read)
	if err != nil {
		t.Fatal(err)
	}
	job, err := dup(p.Child())
	if err != nil {
		t.Fatal(err)
	}
	p.Start()
	for b := text; len(b) > 0; {
		n := min(len(b), 70_001)
		if _, err := job.Write(b[:n]); err != nil {
			t.Fatal(err)
		}
		b = b[n:]
	}
	if err := job.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(wait.Long); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(to.Bytes(), text) || !bytes.Equal(read.Bytes(), text) {
		t.Errorf("passed on %d bytes and read %d of %d, or changed them", to.Len(), read.Len(), len(text))
	}
}

type nobody struct{}

func (nobody) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

// TestPumpTellsTheJobThatNobodyReads: as in a shell pipeline, the writer gets
// EPIPE when the reader of its output has gone.
func TestPumpTellsTheJobThatNobodyReads(t *testing.T) {
	p, err := NewPump(nobody{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	job, err := dup(p.Child())
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	p.Start()
	if _, err := job.Write([]byte("first\n")); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if _, err := job.Write([]byte("second\n")); err == nil {
		t.Error("the job is not told")
	}
}

func TestPumpOfAChildThatNeverStarted(t *testing.T) {
	p, err := NewPump(io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(wait.Long); err != nil {
		t.Error(err)
	}
}
