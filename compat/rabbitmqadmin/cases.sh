# Sourced by run.sh. case NAME ARGUMENT...: one call of rabbitmqadmin, which passes when it ends with 0; after `=`, when its output
# has this text, too. Cases depend on those before them.

case_ overview show overview = 4.2.0
case_ churn show churn
case_ endpoint show endpoint
for what in bindings channels connections consumers deprecated_features deprecated_features_in_use exchanges feature_flags nodes \
    operator_policies parameters permissions policies queues user_limits users vhost_limits vhosts; do
    case_ "list-$what" list "$what"
done
case_ declare-vhost declare vhost --name v1 --description d --default-queue-type quorum
case_ list-vhosts-again list vhosts = v1
case_ declare-user declare user --name u1 --password p --tags management
case_ list-users-again list users = u1
case_ declare-permissions declare permissions --user u1 --configure '.*' --write '.*' --read '.*'
case_ list-permissions-again list permissions = u1
case_ declare-quorum-queue declare queue --name q1 --type quorum --durable true
case_ declare-classic-queue declare queue --name q2 --type classic --arguments '{"x-max-length": 7}'
case_ declare-exchange declare exchange --name x1 --type topic
case_ declare-exchange-binding declare binding --source amq.fanout --destination x1 --destination-type exchange --routing-key ''
case_ declare-binding declare binding --source x1 --destination q1 --destination-type queue --routing-key 'a.#'
case_ declare-binding-with-arguments declare binding --source amq.headers --destination q1 --destination-type queue --routing-key '' \
    --arguments '{"k": "v"}'
case_ list-bindings-again list bindings = 'a.#'
case_ list-exchanges-again list exchanges = x1
case_ list-queues-again list queues = quorum
case_ declare-policy declare policy --name p1 --pattern '^q' --apply-to queues --priority 1 --definition '{"max-length": 5}'
case_ list-policies-again list policies = p1
case_ list-policies-of-vhost policies list_in --vhost / = p1
case_ declare-operator-policy declare operator_policy --name o1 --pattern '^q' --apply-to queues --priority 1 \
    --definition '{"max-length": 3}'
case_ list-operator-policies-again list operator_policies = o1
case_ declare-vhost-limit declare vhost_limit --name max-queues --value 100
case_ list-vhost-limits-again list vhost_limits = max-queues
case_ declare-user-limit declare user_limit --user u1 --name max-channels --value 9
case_ list-user-limits-again list user_limits = max-channels
case_ declare-parameter declare parameter --component shovel --name s \
    --value '{"src-uri": "amqp://", "src-queue": "s1", "src-predeclared": true, "dest-uri": "amqp://",
        "dest-queue": "s2", "dest-predeclared": true}'
case_ list-parameters-again list parameters --component shovel = s
case_ declare-shovel shovels declare_amqp091 --name s2 --source-uri "amqp://guest:guest@$amqp" \
    --destination-uri "amqp://guest:guest@$amqp" --source-queue s3 --destination-queue s4
case_ list-shovels shovels list_all = s2
case_ list-shovels-of-vhost shovels list = s2
case_ delete-shovel shovels delete --name s2
case_ declare-upstream federation declare_upstream --name up --uri "amqp://guest:guest@$amqp" --ack-mode on-publish
case_ declare-upstream-for-exchanges federation declare_upstream_for_exchanges --name upx \
    --uri "amqp://guest:guest@$amqp" --queue-type quorum --max-hops 2
case_ declare-upstream-for-queues federation declare_upstream_for_queues --name upq --uri "amqp://guest:guest@$amqp" \
    --queue-name q2
case_ list-upstreams federation list_all_upstreams = upx
case_ declare-federating-policy declare policy --name fed --pattern '^fed' --apply-to exchanges --priority 1 \
    --definition '{"federation-upstream": "upx"}'
case_ declare-federated-exchange declare exchange --name fed.x --type topic
# Links come a moment after what asks for them.
case_ list-links federation list_all_links
case_ delete-upstream federation delete_upstream --name upx
case_ set-global-parameter global_parameters set --name g --value '{"a": 1}'
case_ list-global-parameters global_parameters list = g
case_ publish publish message --exchange x1 --routing-key a.b --payload hello
case_ get get messages --queue q1 --count 1 --ack-mode ack_requeue_true = hello
case_ show-queue queues show --name q1 = quorum
case_ purge purge queue --name q1
case_ export definitions export --file "$work/definitions.json"
case_ import definitions import --file "$work/definitions.json"
case_ export-of-vhost definitions export_from_vhost --file "$work/vhost.json"
case_ import-into-vhost --vhost v1 definitions import_into_vhost --file "$work/vhost.json"
case_ check-local-alarms health_check local_alarms
case_ check-alarms health_check cluster_wide_alarms
case_ check-quorum health_check node_is_quorum_critical
case_ check-port health_check port_listener --port "${amqp##*:}"
case_ check-protocol health_check protocol_listener --protocol amqp
case_ delete-binding delete binding --source x1 --destination q1 --destination-type queue --routing-key 'a.#'
case_ delete-queue delete queue --name q2
case_ delete-missing-queue-idempotently delete queue --name q2 --idempotently
case_ delete-exchange delete exchange --name x1
case_ delete-policy delete policy --name p1
case_ delete-operator-policy delete operator_policy --name o1
case_ delete-vhost-limit delete vhost_limit --name max-queues
case_ delete-user-limit delete user_limit --user u1 --name max-channels
case_ delete-parameter delete parameter --component shovel --name s
case_ clear-global-parameter global_parameters clear --name g
case_ delete-permissions delete permissions --user u1
case_ delete-user delete user --name u1
case_ delete-vhost delete vhost --name v1
case_ rebalance rebalance queues
case_ memory show memory_breakdown_in_bytes --node "$node"
