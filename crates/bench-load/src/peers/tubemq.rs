//! Apache TubeMQ (of InLong) from Maven Central: `ZooKeeper`, a master, one broker.
//!
//! Central has the server of 2.4.0 without its parent pom, so its dependencies are listed here; the newest core and client
//! are 1.13.0, with which the server of 2.4.0 works. The jar lacks the master's web pages: a template replaces the page of the admin
//! API. No process of TubeMQ can listen on one address only: `loopback` restricts them. The master delays new topics by half a
//! minute, which cannot be configured: [`STEPS`] replaces the class with the delays.

use super::{Setting, jars, java_of, loopback, maven, properties, put, succeed};
use crate::error::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of the server.
pub const VERSION: &str = "2.4.0";
/// The version of core and client.
pub const CORE_VERSION: &str = "1.13.0";
/// The build date of core and client; the jar of the server has none.
pub const RELEASED: &str = "2024-07-28";
/// Sources of the tuned settings.
pub const SOURCES: [&str; 2] = [
    "inlong.apache.org, TubeMQ VS Kafka, 4.3 Broker system configuration: its settings in its published comparison",
    "github.com/apache/inlong, inlong-tubemq/bin/env.sh: a heap of fixed size, a third of it young; there 15 GB, here less",
];
/// Maven's project file.
const POM: &str = include_str!("../../peers/tubemq.xml");
/// Replaces the master's class of the same name, which delays each step of creating a topic.
const STEPS: &str = include_str!("../../peers/StepStatus.java");
/// The directory of the compiled `STEPS`, below the jars.
const STEPS_FOLDER: &str = "steps";
/// JVM options of `ZooKeeper`.
const ZOOKEEPER_JVM: [&str; 2] = ["-Xms256m", "-Xmx256m"];
const MASTER: &str = "org.apache.inlong.tubemq.server.tools.MasterStartup";
const MASTER_JVM: [&str; 2] = ["-Xms512m", "-Xmx512m"];
/// Warnings to standard output.
const LOG4J: &str = r#"<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="%d %p %c{1} - %m%n"/></Console></Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"#;
/// The administrators' token; also in the Java worker.
const TOKEN: &str = "bench";

/// Fetches `TubeMQ`'s jars into the directory `to`, unless they exist.
///
/// # Errors
/// Maven is missing or cannot fetch them, or there is no C compiler.
pub fn install(to: &Path) -> Result<()> {
    let server = format!("tubemq-server-{VERSION}.jar");
    if !to.join(&server).exists() {
        jars(POM, to, &server)?;
        // Separately, because its own pom needs a parent pom that does not exist.
        let artifact = format!("-Dartifact=org.apache.inlong:tubemq-server:{VERSION}");
        maven(&to.join("pom.xml"), &["dependency:copy".to_owned(), artifact], to)?;
    }
    loopback(to)?;
    steps(to).map(drop)
}

/// Builds `STEPS`, unless it exists, and returns the directory of its class.
fn steps(to: &Path) -> Result<PathBuf> {
    let classes = to.join(STEPS_FOLDER);
    if !classes.join("org/apache/inlong/tubemq/server/common/statusdef/StepStatus.class").exists() {
        let source = put(&classes, "StepStatus.java", STEPS)?;
        let mut compiler = Command::new("javac");
        compiler.args(["-nowarn", "-d"]).arg(&classes).arg(source);
        succeed(&mut compiler, "install a JDK of version 17 or later")?;
    }
    Ok(classes)
}

/// A profile of `TubeMQ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The defaults.
    Default,
    /// As in its published comparison with Kafka.
    Tuned,
}

/// Returns the options for the broker's heap.
#[must_use]
pub fn memory(profile: Profile) -> [&'static str; 3] {
    match profile {
        Profile::Default => ["-Xms2g", "-Xmx2g", "-Xmn640m"],
        Profile::Tuned => ["-Xms4g", "-Xmx4g", "-Xmn1280m"],
    }
}

/// Returns the defaults of the broker's topics, for the master.
#[must_use]
pub fn settings(profile: Profile) -> Vec<Setting> {
    let usual = "the default; sent to the master with the broker";
    match profile {
        Profile::Default => {
            vec![Setting::new("unflushThreshold", "1000", usual), Setting::new("unflushInterval", "10000", usual)]
        }
        Profile::Tuned => [
            ("unflushThreshold", "5000"),
            ("unflushInterval", "10000"),
            ("unflushDataHold", "5000"),
            ("memCacheMsgSizeInMB", "5"),
            ("memCacheMsgCntInK", "10"),
            ("memCacheFlushIntvl", "20000"),
        ]
        .map(|(name, value)| Setting::new(name, value, SOURCES[0]))
        .to_vec(),
    }
}

/// Returns the rules of all groups, for the master.
#[must_use]
pub fn group_settings() -> Vec<Setting> {
    vec![Setting::new(
        "qryPriorityId",
        "303",
        "groups with a filter read from memory too; by default (301) they read from the disk only, up to 20 s later",
    )]
}

/// Reason for shorter delays of the master.
const SOONER: &str = "so that topics and groups are ready sooner";

/// Describes the replaced class of the master.
#[must_use]
pub fn step_delays_removed() -> Setting {
    let why = "a class of the master is replaced on its class path: topics are ready in seconds instead of half a minute, which no setting changes; the broker's classes are unchanged";
    Setting::new("StepStatus.wait", "0", why)
}

/// Returns the master's settings that differ from its defaults.
#[must_use]
pub fn master_settings() -> Vec<Setting> {
    vec![
        Setting::new("consumerBalancePeriodMs", "1000", SOONER),
        Setting::new("firstBalanceDelayAfterStartMs", "500", SOONER),
        Setting::new("stepChgWaitPeriodMs", "1000", SOONER),
        Setting::new("onlineOnlyReadToRWPeriodMs", "1000", SOONER),
        Setting::new("offlineOnlyReadToRWPeriodMs", "1000", SOONER),
    ]
}

/// Returns the broker's settings: those of its `conf/broker.ini`, which differ from the code's defaults.
#[must_use]
pub fn broker_settings(profile: Profile) -> Vec<Setting> {
    let shipped = "as in the distribution's conf/broker.ini";
    let mut all = vec![
        Setting::new("maxSegmentSize", "1073741824", shipped),
        Setting::new("maxIndexSegmentSize", "22020096", shipped),
        Setting::new("transferSize", "524288", shipped),
        Setting::new("loadMessageStoresInParallel", "true", shipped),
        Setting::new("consumerRegTimeoutMs", "35000", shipped),
        Setting::new("heartbeatPeriodMs", "1000", SOONER),
    ];
    if profile == Profile::Tuned {
        all.push(Setting::new("tcpWriteServiceThread", "50", SOURCES[0]));
        all.push(Setting::new("tcpReadServiceThread", "50", SOURCES[0]));
    }
    all
}

/// Loopback ports.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// `ZooKeeper`'s.
    pub zookeeper: u16,
    /// The master's, for clients.
    pub master: u16,
    /// The master's, for administration.
    pub admin: u16,
    /// The master's, for metrics; always opened.
    pub figures: u16,
    /// The broker's.
    pub broker: u16,
    /// The broker's web pages.
    pub broker_web: u16,
}

/// A `TubeMQ` to start.
#[derive(Debug)]
pub struct Tubemq<'a> {
    /// The directory of its jars.
    pub jars: &'a Path,
    /// The directory of this run.
    pub place: &'a Path,
    /// The profile.
    pub profile: Profile,
    /// Its ports.
    pub ports: Ports,
}

impl Tubemq<'_> {
    fn run(&self, options: &[&str], class: &str, file: &Path) -> Result<Command> {
        let log = put(self.place, "log4j2.xml", LOG4J)?;
        let own =
            [format!("-Dlog4j.configurationFile={}", log.display()), format!("-Dtubemq.home={}", self.place.display())];
        let options: Vec<&str> = options.iter().copied().chain(own.iter().map(String::as_str)).collect();
        let mut of = vec![format!("{}/*", self.jars.display())];
        if class == MASTER {
            of.insert(0, steps(self.jars)?.display().to_string());
        }
        let mut command = java_of(&of, &options, class);
        if class.contains("tubemq") {
            command.arg("-f");
        }
        command.arg(file).env("LD_PRELOAD", loopback(self.jars)?).current_dir(self.place);
        Ok(command)
    }

    /// Returns the command that runs `ZooKeeper`.
    ///
    /// # Errors
    /// Its settings cannot be written.
    pub fn zookeeper(&self) -> Result<Command> {
        let lines = [
            "tickTime=2000".to_owned(),
            format!("dataDir={}", self.place.join("zookeeper").display()),
            format!("clientPort={}", self.ports.zookeeper),
            "clientPortAddress=127.0.0.1".to_owned(),
            "admin.enableServer=false".to_owned(),
        ];
        let file = put(self.place, "zoo.cfg", &properties(&lines, &[]))?;
        self.run(&ZOOKEEPER_JVM, "org.apache.zookeeper.server.ZooKeeperServerMain", &file)
    }

    /// Returns the command that runs the master.
    ///
    /// # Errors
    /// Its settings cannot be written.
    pub fn master(&self) -> Result<Command> {
        put(self.place, "resources/templates/screen/webapi.vm", "")?;
        put(self.place, "resources/templates/layout/webapi.vm", "$sb\n")?;
        let file = put(self.place, "master.ini", &self.master_file())?;
        self.run(&MASTER_JVM, MASTER, &file)
    }

    fn master_file(&self) -> String {
        let lines = [
            "[master]".to_owned(),
            "hostName=127.0.0.1".to_owned(),
            format!("port={}", self.ports.master),
            format!("webPort={}", self.ports.admin),
            format!("confModAuthToken={TOKEN}"),
            format!("webResourcePath={}", self.place.join("resources").display()),
        ];
        let rest = [
            "[meta_zookeeper]".to_owned(),
            "zkNodeRoot=/tubemq".to_owned(),
            format!("zkServerAddr=127.0.0.1:{}", self.ports.zookeeper),
            "[prometheus]".to_owned(),
            "promEnable=false".to_owned(),
            format!("promHttpPort={}", self.ports.figures),
        ];
        properties(&lines, &master_settings()) + &properties(&rest, &[])
    }

    /// Returns the command that runs the broker.
    ///
    /// # Errors
    /// Its settings cannot be written.
    pub fn broker(&self) -> Result<Command> {
        let file = put(self.place, "broker.ini", &self.broker_file())?;
        self.run(&memory(self.profile), "org.apache.inlong.tubemq.server.tools.BrokerStartup", &file)
    }

    fn broker_file(&self) -> String {
        let lines = [
            "[broker]".to_owned(),
            "brokerId=1".to_owned(),
            "hostName=127.0.0.1".to_owned(),
            format!("port={}", self.ports.broker),
            format!("webPort={}", self.ports.broker_web),
            format!("masterAddressList=127.0.0.1:{}", self.ports.master),
            format!("primaryPath={}", self.place.join("data").display()),
        ];
        properties(&lines, &broker_settings(self.profile)) + "[prometheus]\npromEnable=false\n"
    }

    /// Returns the requests to the master that register the broker: set the defaults of groups, add the broker, bring it online.
    #[must_use]
    pub fn registration(&self) -> [String; 3] {
        let stated = |settings: Vec<Setting>| -> String {
            settings.into_iter().map(|setting| format!("&{}={}", setting.name, setting.value)).collect()
        };
        let groups = format!(
            "type=op_modify&method=admin_set_cluster_default_setting&createUser=bench&confModAuthToken={TOKEN}{}",
            stated(group_settings())
        );
        let known = format!(
            "type=op_modify&method=admin_add_broker_configure&brokerId=1&brokerIp=127.0.0.1&brokerPort={}&brokerWebPort={}\
             &deletePolicy=delete,168h&numPartitions=1&acceptPublish=true&acceptSubscribe=true&createUser=bench\
             &confModAuthToken={TOKEN}{}",
            self.ports.broker,
            self.ports.broker_web,
            stated(settings(self.profile))
        );
        let online = format!(
            "type=op_modify&method=admin_online_broker_configure&brokerId=1&modifyUser=bench&confModAuthToken={TOKEN}"
        );
        [groups, known, online]
    }

    /// Returns the request for the broker's status, and the parts of its response once topics can be created.
    #[must_use]
    pub fn status_request() -> (&'static str, [&'static str; 3]) {
        let ready = ["\"isBrokerOnline\":\"true\"", "\"isConfLoaded\":\"true\"", "\"subStatus\":\"idle\""];
        ("type=op_query&method=admin_query_broker_run_status", ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_tubemq_know_one_another() {
        let place = Path::new("somewhere");
        let ports = Ports { zookeeper: 1, master: 2, admin: 3, figures: 4, broker: 5, broker_web: 6 };
        let tubemq = Tubemq { jars: place, place, profile: Profile::Default, ports };
        let (master, broker) = (tubemq.master_file(), tubemq.broker_file());
        assert!(master.contains("port=2\nwebPort=3\n") && master.contains("zkServerAddr=127.0.0.1:1\n"), "{master}");
        assert!(
            broker.contains("masterAddressList=127.0.0.1:2\n") && broker.contains("hostName=127.0.0.1\n"),
            "{broker}"
        );
        let [_, known, _] = tubemq.registration();
        assert!(known.contains("brokerPort=5") && known.contains("&unflushThreshold=1000&"), "{known}");
        let [_, tuned, _] = Tubemq { profile: Profile::Tuned, ..tubemq }.registration();
        assert!(tuned.contains("&unflushThreshold=5000&"), "{tuned}");
    }

    /// Regression test: groups with a filter received nothing for 20 s: by default they are not served from memory.
    #[test]
    fn groups_with_a_filter_read_from_memory() {
        let place = Path::new("somewhere");
        let ports = Ports { zookeeper: 1, master: 2, admin: 3, figures: 4, broker: 5, broker_web: 6 };
        let [groups, ..] = Tubemq { jars: place, place, profile: Profile::Default, ports }.registration();
        let setting = groups.split('&').find_map(|part| part.strip_prefix("qryPriorityId="));
        let priority: u32 = setting.and_then(|value| value.parse().ok()).expect("it is set");
        // The hundreds digit applies to groups without a filter, the last digit to groups with one: 1 is disk, 3 is memory and disk.
        assert_eq!((priority / 100, priority % 100), (3, 3), "{groups}");
    }

    /// Regression test: each round of each cell waited 45 to 87 s for its topics.
    #[test]
    fn the_master_has_no_delays_and_the_broker_is_unchanged() {
        let jars = std::env::temp_dir().join(format!("polylogue-bench-tubemq-{}", std::process::id()));
        let class = "steps/org/apache/inlong/tubemq/server/common/statusdef/StepStatus.class";
        // As if they had been built.
        for built in [class, "loopback.so"] {
            put(&jars, built, "").expect("a file");
        }
        let ports = Ports { zookeeper: 1, master: 2, admin: 3, figures: 4, broker: 5, broker_web: 6 };
        let tubemq = Tubemq { jars: &jars, place: &jars, profile: Profile::Default, ports };
        let class_path = |command: Result<Command>| -> String {
            let command = command.expect("a command");
            let arguments: Vec<String> = command.get_args().map(|one| one.to_string_lossy().into_owned()).collect();
            let at = arguments.iter().position(|one| one == "-cp").expect("it has a class path");
            arguments[at + 1].replace(&jars.display().to_string(), "JARS")
        };
        let paths = [class_path(tubemq.master()), class_path(tubemq.broker()), class_path(tubemq.zookeeper())];
        std::fs::remove_dir_all(&jars).expect("it was created above");
        assert_eq!(paths, ["JARS/steps:JARS/*", "JARS/*", "JARS/*"]);
        assert!(STEPS.contains("enum StepStatus") && !STEPS.contains("000"), "no delays");
    }

    #[test]
    fn the_pom_has_the_reported_version() {
        assert_eq!(POM.matches(&format!("<version>{CORE_VERSION}</version>")).count(), 2);
    }
}
