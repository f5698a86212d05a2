package shared

import (
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Fresh gives a name that nothing has.
func Fresh(prefix string) string {
	return prefix + "-" + rand.Text()
}

// Check stops the case when something does not hold.
func Check(holds bool, format string, about ...any) {
	if !holds {
		panic(fmt.Sprintf(format, about...))
	}
}

// Done stops the case with an error.
func Done(err error) {
	if err != nil {
		panic(err)
	}
}

// Named is a case of a program that has cases of its own: it panics when it fails.
type Named[P any] struct {
	Name string
	Run  func(P)
}

func (c Named[P]) run(place P, after func(P)) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
		after(place)
	}()
	c.Run(place)
	return nil
}

// MainNamed runs the cases that the arguments name, or all, at the place that the first argument tells, and ends the process. What a case
// left there is cleared after it.
func MainNamed[P any](cases []Named[P], connect func(address string) P, after func(P)) {
	var names []string
	for _, c := range cases {
		names = append(names, c.Name)
	}
	if len(os.Args) == 2 && os.Args[1] == "--list" {
		fmt.Println(strings.Join(names, "\n"))
		return
	}
	place, wanted, failed := connect(os.Args[1]), os.Args[2:], false
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			failed = true
			fmt.Printf("FAIL %s: there is no such case\n", name)
		}
	}
	for _, c := range cases {
		if len(wanted) > 0 && !slices.Contains(wanted, c.Name) {
			continue
		}
		if err := c.run(place, after); err != nil {
			failed = true
			fmt.Printf("FAIL %s: %v\n", c.Name, err)
		} else {
			fmt.Printf("ok %s\n", c.Name)
		}
	}
	if failed {
		os.Exit(1)
	}
}
