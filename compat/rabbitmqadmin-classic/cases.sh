# Sourced by run.sh. case_ NAME ARGUMENT...: one call of rabbitmqadmin, which passes when it ends with 0; after `=`, when its output
# has this text, too. Cases depend on those before them.

case_ show-overview show overview = polylogue
for what in bindings channels connections consumers exchanges nodes operator_policies parameters permissions policies queues users \
    vhosts vhost_limits; do
    case_ "list-$what" list "$what"
done
case_ declare-vhost declare vhost name=v1
case_ list-vhosts-again list vhosts name = v1
case_ declare-user declare user name=u1 password=p tags=management
case_ list-users-again list users = u1
case_ declare-permission declare permission vhost=/ user=u1 'configure=.*' 'write=.*' 'read=.*'
case_ declare-exchange declare exchange name=x1 type=topic
case_ declare-queue declare queue name=q1 durable=true 'arguments={"x-max-length": 7}'
case_ declare-quorum-queue declare queue name=q2 durable=true queue_type=quorum
case_ declare-binding declare binding source=x1 destination=q1 destination_type=queue 'routing_key=a.#'
case_ list-bindings-again list bindings source destination routing_key = 'a.#'
case_ declare-policy declare policy name=p1 'pattern=^q' 'definition={"message-ttl": 100000}' apply-to=queues priority=1
case_ list-policies-again list policies = p1
case_ declare-operator-policy declare operator_policy name=o1 'pattern=^q' 'definition={"max-length": 5}'
case_ declare-vhost-limit declare vhost_limit vhost=/ name=max-queues value=100
case_ declare-parameter declare parameter component=shovel name=s \
    'value={"src-uri": "amqp://", "src-queue": "s1", "src-predeclared": true, "dest-uri": "amqp://",
        "dest-queue": "s2", "dest-predeclared": true}'
case_ publish publish exchange=x1 routing_key=a.b payload=hello = 'Message published'
case_ publish-unroutable publish exchange=x1 routing_key=b payload=hello = 'NOT routed'
case_ list-queues-again list queues name messages type policy = p1
case_ get get queue=q1 count=1 ackmode=ack_requeue_true = hello
case_ get-and-settle get queue=q1 count=1 ackmode=ack_requeue_false = hello
case_ purge purge queue name=q1
case_ sort-and-columns --sort=name --sort-reverse list queues name = q2
case_ json --format=pretty_json list queues = '"message_bytes"'
case_ export export "$work/definitions.json" = Exported
case_ import import "$work/definitions.json" = Uploaded
case_ export-of-vhost --vhost=/ export "$work/vhost.json"
case_ import-into-vhost --vhost=v1 import "$work/vhost.json"
case_ delete-binding delete binding source=x1 destination_type=queue destination=q1 'properties_key=a.%23'
case_ delete-queue delete queue name=q1
case_ delete-exchange delete exchange name=x1
case_ delete-policy delete policy name=p1
case_ delete-operator-policy delete operator_policy name=o1
case_ delete-vhost-limit delete vhost_limit vhost=/ name=max-queues
case_ delete-parameter delete parameter component=shovel name=s
case_ delete-permission delete permission vhost=/ user=u1
case_ delete-user delete user name=u1
case_ delete-vhost delete vhost name=v1
