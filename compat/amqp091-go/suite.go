// Package compat pins the version of amqp091-go whose own tests run.sh builds and runs.
package compat

import _ "github.com/rabbitmq/amqp091-go"
