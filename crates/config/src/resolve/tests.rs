use super::*;

/// A file in the temporary directory, deleted when dropped.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> TempFile {
        let path = std::env::temp_dir().join(format!("polylogue-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        TempFile(path)
    }
}

impl Drop for TempFile {
    #[allow(clippy::disallowed_methods, reason = "a test removes its own file")]
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

fn from_file(name: &str, text: &str) -> Result<Resolved, String> {
    let file = TempFile::new(name, text);
    let sources = Sources { file: Some(file.0.clone()), ..Sources::default() };
    Resolved::from_sources(&sources).map_err(|e| e.0.replace(&file.0.display().to_string(), "FILE"))
}

fn found(resolved: &Resolved, name: &str) -> (String, Source) {
    let setting = resolved.settings().into_iter().find(|s| format!("{}.{}", s.section.name(), s.name) == name).unwrap();
    (setting.value, setting.source)
}

#[test]
fn a_later_source_goes_before_an_earlier_one() {
    let file = TempFile::new(
        "precedence",
        "[server]\nconnections_max = 1\nworker_threads = 1\n[kafka]\nnum.partitions = 1\n\"group.max.size\" = 1\n",
    );
    let in_file = Source::File(file.0.clone());
    let sources = Sources {
        file: Some(file.0.clone()),
        variables: pairs(&[
            ("POLYLOGUE_CONNECTIONS_MAX", "2"),
            ("POLYLOGUE_KAFKA_NUM_PARTITIONS", "2"),
            ("POLYLOGUE_SHUTDOWN_MS_MAX", "2s"),
            ("POLYLOGUE_ADVERTISE", ""),
            ("PATH", "/bin"),
        ]),
        command_line: pairs(&[("server.connections_max", "3"), ("kafka.fetch.max.bytes", "3333")]),
    };
    let resolved = Resolved::from_sources(&sources).unwrap();
    let env = |name: &str| Source::Environment(name.to_owned());
    for (name, value, source) in [
        ("server.connections_max", "3", Source::CommandLine),
        ("kafka.fetch.max.bytes", "3333", Source::CommandLine),
        ("kafka.num.partitions", "2", env("POLYLOGUE_KAFKA_NUM_PARTITIONS")),
        ("server.shutdown_ms_max", "2s", env("POLYLOGUE_SHUTDOWN_MS_MAX")),
        ("server.worker_threads", "1", in_file.clone()),
        ("kafka.group.max.size", "1", in_file),
        ("server.data", "./polylogue-data", Source::Default),
        ("server.advertise", "", Source::Default),
    ] {
        assert_eq!(found(&resolved, name), (value.to_owned(), source), "{name}");
    }
}

#[test]
fn the_file_may_be_named_in_the_environment_and_the_flag_goes_before_it() {
    let file = TempFile::new("by-env", "[server]\nworker_threads = 7\n");
    let variables = vec![("POLYLOGUE_CONFIG".to_owned(), file.0.display().to_string())];
    let by_env = Resolved::from_sources(&Sources { variables: variables.clone(), ..Sources::default() }).unwrap();
    assert_eq!(found(&by_env, "server.worker_threads").0, "7");
    let other = TempFile::new("by-flag", "");
    let sources = Sources { variables, file: Some(other.0.clone()), ..Sources::default() };
    assert_eq!(found(&Resolved::from_sources(&sources).unwrap(), "server.worker_threads").0, "0");
}

#[test]
fn the_file_takes_lists_numbers_and_truth_values() {
    let resolved = from_file(
        "kinds",
        "[server]\nlisten = [\"kafka=127.0.0.1:1\", \"http=127.0.0.1:2\"]\noutput_bytes_max = 33554432\n\
         [kafka]\nauto.create.topics.enable = false\nlog.cleanup.policy = [\"compact\", \"delete\"]\n",
    )
    .unwrap();
    assert_eq!(found(&resolved, "server.listen").0, "kafka=127.0.0.1:1,http=127.0.0.1:2");
    assert_eq!(found(&resolved, "server.output_bytes_max").0, "32MiB");
    assert_eq!(found(&resolved, "kafka.auto.create.topics.enable").0, "false");
    assert_eq!(found(&resolved, "kafka.log.cleanup.policy").0, "compact,delete");
}

#[test]
fn a_bad_file_is_told_in_one_line() {
    for (name, text, error) in [
        (
            "no-toml",
            "[server]\nlisten =\n",
            "the configuration file FILE is not valid: line 2: string values must be quoted, expected literal string",
        ),
        (
            "section",
            "[sever]\n",
            "unknown section sever in FILE; did you mean [server]? (known are [server], [tls], [oauth], [log], [amqp], [kafka])",
        ),
        (
            "outside",
            "data = 1\n",
            "unknown section data in FILE (known are [server], [tls], [oauth], [log], [amqp], [kafka])",
        ),
        (
            "option",
            "[server]\nconnection_max = 1\n",
            "unknown option server.connection_max (from FILE); did you mean server.connections_max?",
        ),
        (
            "value",
            "[log]\nsync_shards = 0\n",
            "log.sync_shards = \"0\" (from FILE): expected a whole number from 1 to 64",
        ),
        (
            "kind",
            "[log]\nsync_shards = 1979-05-27\n",
            "log.sync_shards in FILE: expected a string, a number, a boolean or a list of them",
        ),
    ] {
        assert_eq!(from_file(name, text).unwrap_err(), error, "{name}");
    }
    let missing = Sources { file: Some("no/such/file.toml".into()), ..Sources::default() };
    assert_eq!(
        Resolved::from_sources(&missing).unwrap_err().0,
        "cannot read the configuration file no/such/file.toml: No such file or directory (os error 2)"
    );
}

#[test]
fn unknown_names_are_errors_everywhere() {
    let variable = |name: &str| {
        let variables = pairs(&[(name, "1")]);
        Resolved::from_sources(&Sources { variables, ..Sources::default() }).unwrap_err().0
    };
    assert_eq!(
        variable("POLYLOGUE_CONECTIONS_MAX"),
        "unknown variable POLYLOGUE_CONECTIONS_MAX in the environment; did you mean POLYLOGUE_CONNECTIONS_MAX?"
    );
    assert_eq!(variable("POLYLOGUE_XYZZY"), "unknown variable POLYLOGUE_XYZZY in the environment");
    let set = |name: &str| {
        let command_line = pairs(&[(name, "1")]);
        Resolved::from_sources(&Sources { command_line, ..Sources::default() }).unwrap_err().0
    };
    for (name, meant) in [
        ("num.partitions", "; did you mean kafka.num.partitions?"),
        ("data", "; did you mean server.data?"),
        ("server.listn", "; did you mean server.listen?"),
        ("plugh", "; `polylogue config` lists all"),
        ("kafka.", "; `polylogue config` lists all"),
    ] {
        assert_eq!(set(name), format!("unknown option {name} (from the command line){meant}"));
    }
}

#[test]
fn an_option_given_twice_on_the_command_line_is_an_error() {
    let command_line = pairs(&[("server.data", "a"), ("server.data", "b")]);
    let error = Resolved::from_sources(&Sources { command_line, ..Sources::default() }).unwrap_err();
    assert_eq!(error.0, "server.data is given twice on the command line");
}

/// The table's defaults are values like any other, in canonical form.
#[test]
fn defaults_are_canonical_and_within_their_bounds() {
    for def in OPTIONS {
        assert_eq!(def.kind.canonical(def.default).as_deref(), Ok(def.default), "{}", def.full_name());
    }
}
