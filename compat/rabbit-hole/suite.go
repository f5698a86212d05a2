// Package compat pins the version of rabbit-hole whose own tests run.sh builds and runs.
package compat

import _ "github.com/michaelklishin/rabbit-hole/v3"
