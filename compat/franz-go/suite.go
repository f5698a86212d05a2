// Package compat pins the version of franz-go whose own tests run.sh builds and runs.
package compat

import _ "github.com/twmb/franz-go/pkg/kgo"
