package eyes

import "sync"

// queue does things one after the other, and whoever puts one in never waits. It
// needs no bound: a Watcher bounds its events and the lines that it relays.
type queue struct {
	mu   sync.Mutex
	todo []func()
	over bool
	wake chan struct{} // capacity 1
	done chan struct{}
}

func newQueue() *queue {
	q := &queue{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(q.done)
		for range q.wake {
			for _, f := range q.take() {
				f()
			}
		}
		for _, f := range q.take() {
			f()
		}
	}()
	return q
}

func (q *queue) put(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return // a process that the job left behind still writes
	}
	q.todo = append(q.todo, f)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	todo := q.todo
	q.todo = nil
	return todo
}

// close waits until everything is done; what is put in after it is not.
func (q *queue) close() {
	q.mu.Lock()
	q.over = true
	q.mu.Unlock()
	close(q.wake)
	<-q.done
}
