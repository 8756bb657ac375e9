// Package report shows every result value of fabrun as text, JSON or HTML. It
// is last and alone, so that no value type grows a way to print itself.
package report
