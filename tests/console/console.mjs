// console.mjs HTTP KAFKA PASSWORD PICTURES: see run.sh.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { connect } from "node:net";
import kafkajs from "kafkajs";
import { PHONE, open } from "./browser.mjs";
import { answersAreAsDescribed } from "./openapi.mjs";

const [http, kafka, password, pictures] = process.argv.slice(2);
const url = `http://${http}`;
const basic = `Basic ${Buffer.from(`admin:${password}`).toString("base64")}`;

// Asks the API as a program does.
async function ask(method, path, body) {
  const headers = { authorization: basic };
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(`${url}/api/v1${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  return { status: answer.status, value: text ? JSON.parse(text) : null };
}

// A Kafka client that produces and consumes until it is stopped.
async function traffic() {
  const client = new kafkajs.Kafka({
    brokers: [kafka],
    clientId: "web-shop",
    sasl: { mechanism: "plain", username: "admin", password },
    logLevel: kafkajs.logLevel.NOTHING,
  });
  const producer = client.producer();
  const consumer = client.consumer({ groupId: "billing" });
  await ask("POST", "/topics", { name: "visits", partitions: 6 });
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topic: "visits", fromBeginning: true });
  await consumer.run({ eachMessage: async () => {} });
  let going = true;
  const writing = (async () => {
    for (let number = 0; going; number += 1) {
      const messages = Array.from({ length: 1 + (number % 40) }, (_, at) => ({ key: `user-${at}`, value: JSON.stringify({ page: `/items/${number}`, at: Date.now() }) }));
      await producer.send({ topic: "visits", messages });
    }
  })();
  return async () => {
    going = false;
    await writing;
    await producer.disconnect();
    await consumer.disconnect();
  };
}

const cases = {
  // Without a login the console shows nothing, and a wrong password is refused.
  async login(person) {
    await person.page.goto(url);
    await person.find("textbox", "Administrator").wait();
    assert.ok(person.page.url().startsWith(`${url}/console/`));
    await person.write("Administrator", "admin");
    await person.write("Password", "wrong");
    await person.click("button", "Log in");
    await person.sees("The name or the password is wrong.");
    await person.picture("login");
    await person.write("Password", password);
    await person.click("button", "Log in");
    await person.sees("Requests per second");
    const [cookie] = await person.page.cookies();
    assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite], ["polylogue_session", true, "Strict"]);
    assert.equal(await person.page.evaluate(() => document.cookie), "");
  },

  async topics(person) {
    await person.go("topics");
    await person.click("button", "New topic");
    await person.write("Name", "no/name");
    await person.click("button", "Create", "dialog");
    await person.sees("no/name", "dialog [role=alert]");
    await person.write("Name", "orders");
    await person.find("spinbutton", "Partitions As the broker's settings say, without a number.").fill("3");
    await person.write("Settings, one a line: name=value", "retention.ms=86400000");
    await person.page.keyboard.press("Tab");
    await person.click("button", "Create", "dialog");
    await person.gone();
    await person.sees("3 partitions");
    for (let number = 0; number < 60; number += 1) {
      const value = JSON.stringify({ order: number, customer: "größe", lines: [1, 2] });
      const written = await ask("POST", "/topics/orders/messages", { key: `k${number}`, value, partition: number % 3, headers: [{ name: "source", value: "shop" }] });
      assert.equal(written.status, 201);
    }
    await person.click("button", "Write");
    await person.write("Value", '{"written": "by hand"}');
    await person.write("Key", "hand");
    await person.write("Headers, one a line: name=value", "from=console");
    await person.click("button", "Write", "dialog");
    await person.gone();
    await person.sees("by hand", "main table");
    await person.choose("Partition", "0");
    await person.sees("k0", "main table");
    await person.click("button", "3", "main table");
    await person.sees('"customer": "größe"', "main table");
    await person.sees("source: shop");
    await person.picture("topic");
    await person.click("tab", "Partitions");
    await person.sees("Leader epoch");
    await person.click("tab", "Settings");
    await person.click("button", "Change retention.ms");
    await person.write("Value", "7200000");
    await person.click("button", "Save", "dialog");
    await person.gone();
    await person.sees("7200000", "main table");
    assert.equal((await ask("GET", "/topics/orders")).value.config.find((one) => one.name === "retention.ms").value, "7200000");
    await person.click("tab", "Messages");
    await person.click("button", "Delete messages");
    await person.click("button", "Delete messages", "dialog");
    await person.sees("Write orders to go on.", "dialog");
    await person.confirm("Delete messages", "orders");
    await person.sees("No messages.");
    await ask("POST", "/topics", { name: "doomed" });
    await person.go("topics/doomed");
    await person.click("button", "Delete topic");
    await person.confirm("Delete topic", "doomed");
    await person.sees("New topic");
    assert.equal((await ask("GET", "/topics/doomed")).status, 404);
  },

  // Long values are shown to their beginning, and to their end when that is wanted; what is no text is shown in hexadecimal digits.
  async messages(person) {
    await ask("POST", "/topics", { name: "long", partitions: 1 });
    await ask("POST", "/topics/long/messages", { value: `${"x".repeat(40_000)} the end` });
    await ask("POST", "/topics/long/messages", { value: Buffer.from([0, 255, 80, 81]).toString("base64"), encoding: "base64" });
    await ask("POST", "/topics/long/messages", { key: "gone" });
    for (let number = 0; number < 70; number += 1) await ask("POST", "/topics/long/messages", { value: `m${number}` });
    await person.go("topics/long");
    await person.sees("m69", "main table");
    await person.misses("m19", "main table");
    await person.click("button", "Older");
    await person.sees("tombstone", "main table");
    await person.click("button", "1", "main table");
    await person.sees("00 ff 50 51", "main pre");
    await person.click("button", "0", "main table");
    await person.misses("the end", "main pre");
    await person.click("button", "Show all of it");
    await person.sees("the end", "main pre");
    await person.click("button", "Newer");
    await person.sees("m60", "main table");
  },

  async groups(person) {
    await ask("POST", "/topics", { name: "read", partitions: 1 });
    for (let number = 0; number < 7; number += 1) await ask("POST", "/topics/read/messages", { value: `m${number}` });
    await ask("POST", "/groups/billing/reset", { topics: [{ topic: "read" }], to: { offset: 2 } });
    await person.go("groups");
    await person.sees("5", 'main td.n b');
    await person.picture("groups");
    await person.click("link", "billing");
    await person.click("button", "Reset offsets");
    // An empty field was 0 once, which is everything once more.
    await person.choose("To", "offset");
    await person.click("button", "Show what changes", "dialog");
    await person.sees("Write a whole number.", "dialog");
    await person.choose("To", "latest");
    await person.click("button", "Show what changes", "dialog");
    await person.sees("7", "dialog table");
    assert.equal((await ask("GET", "/groups/billing")).value.offsets[0].offset, 2);
    await person.click("button", "Reset", "dialog");
    await person.gone();
    await person.misses("5", "main table td b");
    assert.equal((await ask("GET", "/groups/billing")).value.offsets[0].offset, 7);
    await person.click("button", "Delete group");
    await person.confirm("Delete group", "billing");
    await person.sees("There are no groups yet");
  },

  async queues(person) {
    await person.go("queues");
    await person.click("button", "New queue");
    await person.write("Name", "tasks");
    await person.write("Arguments, as JSON", '{"x-max-priority": 5');
    await person.click("button", "Declare", "dialog");
    await person.sees("Arguments is not JSON", "dialog");
    await person.write("Arguments, as JSON", '{"x-max-priority": 5}');
    await person.click("button", "Declare", "dialog");
    await person.gone();
    await person.sees("amqp-queue.tasks");
    for (const body of ["one", "two"]) {
      await person.click("button", "Publish");
      await person.write("Body", body);
      await person.click("button", "Publish", "dialog");
      await person.gone();
    }
    await person.sees("two", "main table");
    await person.sees("2", "main .cards .card");
    await person.picture("queue");
    const got = await ask("POST", "/vhosts/%2F/queues/tasks/get", { count: 5 });
    assert.deepEqual(got.value.messages.map((one) => [one.body, one.redelivered]), [["one", false], ["two", false]], "looking changed nothing");
    await person.click("button", "Delete messages");
    await person.confirm("Delete messages", "tasks");
    await person.sees("0", "main .cards .card");
    await person.click("button", "Delete queue");
    await person.confirm("Delete queue", "tasks");
    await person.sees("There are no queues here.");
  },

  async exchanges(person) {
    await ask("POST", "/vhosts/%2F/queues", { name: "eu" });
    await person.go("exchanges");
    await person.click("button", "New exchange");
    await person.write("Name", "shop");
    await person.choose("Type", "topic");
    await person.click("button", "Declare", "dialog");
    await person.gone();
    await person.click("button", "Publish to shop");
    await person.write("Routing key", "order.eu");
    await person.click("button", "Publish", "dialog");
    await person.sees("routed to no queue", "dialog");
    await person.click("button", "Cancel", "dialog");
    await person.click("button", "Bind to shop");
    await person.find("textbox", "Name").fill("eu");
    await person.write("Routing key", "order.#");
    await person.click("button", "Bind", "dialog");
    await person.gone();
    await person.sees("order.#");
    await person.picture("exchanges");
    await person.click("button", "Publish to shop");
    await person.write("Routing key", "order.eu");
    await person.click("button", "Publish", "dialog");
    await person.gone();
    await person.click("button", "Unbind eu");
    await person.confirm("Unbind");
    await person.misses("order.#");
    await person.click("button", "Delete shop");
    await person.confirm("Delete exchange", "shop");
    assert.equal((await ask("GET", "/vhosts/%2F/queues/eu")).value.ready, 1);
  },

  async connections(person) {
    const [host, port] = kafka.split(":");
    const socket = connect(Number(port), host);
    await new Promise((done) => socket.once("connect", done));
    const ended = new Promise((done) => socket.once("close", done));
    socket.on("error", () => {});
    socket.resume();
    const own = `127.0.0.1:${socket.localPort}`;
    await person.go("connections");
    await person.sees(own);
    await person.click("button", `End ${own}`);
    await person.confirm("End connection");
    await ended;
    await person.misses(own);
  },

  async users(person) {
    await person.go("users");
    await person.click("button", "New user");
    await person.write("Name", "alice");
    await person.write("Password", "secret-enough");
    await person.click("button", "Save", "dialog");
    await person.gone();
    await person.sees("alice", "main table");
    await person.picture("users");
    await person.click("tab", "Permissions");
    await person.click("button", "Set permissions");
    await person.write("User", "alice");
    await person.click("button", "Save", "dialog");
    await person.gone();
    await person.click("button", "Delete the permissions of alice");
    await person.confirm("Delete");
    await person.misses("alice", "main table");
    await person.click("tab", "Access control lists");
    await person.click("button", "New entry");
    await person.write("Who", "User:alice");
    await person.write("Name * for all; kafka-cluster for the cluster", "orders");
    await person.click("button", "Add", "dialog");
    await person.gone();
    await person.sees("User:alice", "main table");
    await person.click("button", "Delete the ACL of User:alice");
    await person.confirm("Delete");
    await person.sees("No ACLs");
    await person.click("tab", "Quotas");
    await person.click("button", "Set a quota");
    await person.write("User * for all that have none of their own", "alice");
    await person.find("spinbutton", "Written, bytes per second").fill("1048576");
    await person.click("button", "Save", "dialog");
    await person.gone();
    await person.sees("1.00 MiB/s", "main table");
    await person.click("button", "Delete the quota");
    await person.confirm("Delete");
    await person.sees("There are no quotas.");
    await person.click("tab", "Users");
    await person.click("button", "Delete alice");
    await person.confirm("Delete user", "alice");
    await person.misses("alice", "main table");
  },

  async settings(person) {
    await person.go("settings");
    await person.click("button", "Change num.partitions");
    await person.write("Value", "4");
    // It was "1" again when the page was drawn anew meanwhile, which it is with each answer about the broker's state.
    await person.turns();
    await person.says("Value", "4");
    await person.click("button", "Save", "dialog");
    await person.gone();
    await person.picture("settings");
    const find = async () => (await ask("GET", "/settings/node")).value.settings.find((one) => one.name === "num.partitions");
    assert.deepEqual([(await find()).value, (await find()).source], ["4", "DYNAMIC_BROKER_CONFIG"]);
    await person.click("button", "Change num.partitions");
    await person.find("checkbox", "Reset to the inherited value").click();
    await person.click("button", "Save", "dialog");
    await person.gone();
    assert.equal((await find()).value, "1");
    await person.click("tab", "Startup options");
    await person.sees("server.http_connections_max");
  },

  // Everything can be done without a mouse.
  async keyboard(person) {
    const { page } = person;
    await person.go("topics");
    await person.sees("orders");
    await page.keyboard.press("/");
    await page.keyboard.type("nothing like it");
    await person.sees("No topic matches.");
    await page.reload();
    await person.sees("orders");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.innerText), "To the content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await person.find("textbox", "Name").wait();
    await page.keyboard.press("Escape");
    await person.gone();
    assert.equal(await page.evaluate(() => document.activeElement.innerText), "New topic", "one is back where one was");
    await person.go("topics/orders");
    await person.find("tab", "Messages").wait();
    await page.focus("[role=tab][aria-selected=true]");
    await page.keyboard.press("ArrowRight");
    await person.sees("Leader epoch");
  },

  // Light, dark, and a phone.
  async looks(person) {
    const { page } = person;
    const back = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const end = await traffic();
    await person.go("connections");
    await person.sees("web-shop", "main table");
    await person.picture("connections");
    await person.go("groups/billing");
    await person.sees("visits: 0, 1, 2, 3, 4, 5");
    await person.picture("group");
    await person.go("overview");
    // Some points of the first chart, so that there is something to be seen.
    const drawn = () => (document.querySelector("path.line.s0")?.getAttribute("d") ?? "").split("L").length > 6;
    await page.waitForFunction(drawn, { timeout: 60_000 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
    const light = await back();
    await person.picture("overview");
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
    assert.notEqual(await back(), light);
    await person.picture("overview-dark");
    await end();
    await person.click("button", "Colours: auto");
    await person.find("button", "Colours: light").wait();
    assert.equal(await back(), light);
    await page.setViewport(PHONE);
    for (const place of ["overview", "topics", "topics/orders", "topics/orders/settings", "groups", "queues", "queues/%2F/eu", "exchanges", "connections", "users", "users/acls", "settings", "reports"]) {
      await person.go(place);
      await page.waitForNetworkIdle({ idleTime: 200, timeout: 5000 }).catch(() => {});
      await person.fits();
    }
    await person.go("topics");
    await person.sees("orders");
    await person.picture("phone");
    await person.click("button", "Menu");
    await person.click("link", "Queues");
    await person.sees("New queue");
  },

  // A page of another origin cannot act in the administrator's name, though the browser sends the cookie along.
  async strangers(person) {
    const page = await person.browser.newPage();
    const stranger = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<p>hello"));
    await new Promise((done) => stranger.listen(0, "127.0.0.1", done));
    await page.goto(`http://127.0.0.1:${stranger.address().port}/`);
    const asks = (url) => {
      const options = { method: "POST", mode: "no-cors", credentials: "include", body: '{"name": "stolen"}' };
      return fetch(`${url}/api/v1/topics`, options).then(() => "sent");
    };
    const answered = page.waitForResponse((answer) => answer.url().endsWith("/topics"));
    assert.equal(await page.evaluate(asks, url), "sent");
    assert.equal((await answered).status(), 403);
    const reads = (url) => fetch(`${url}/api/v1/status`, { credentials: "include" }).then(() => "read", () => "not read");
    assert.equal(await page.evaluate(reads, url), "not read");
    await page.close();
    stranger.closeAllConnections();
    stranger.close();
    await person.page.bringToFront();
  },

  // Answers of the API are what its description says.
  async described() {
    await ask("PUT", "/quotas", { of: { user: "ann" }, produce_bytes_per_second: 1000 });
    await ask("POST", "/acls", { acls: [{ resource: "topic", name: "t", principal: "User:ann", operation: "read" }] });
    await ask("POST", "/groups/described/reset", { topics: [{ topic: "visits" }], to: "earliest" });
    await answersAreAsDescribed((path) => ask("GET", path), { topics: "visits", groups: "described", queues: "eu" });
  },

  async logout(person) {
    await person.go("overview");
    await person.sees("Requests per second");
    await person.page.setViewport({ width: 1280, height: 860 });
    await person.click("button", "Log out");
    await person.find("textbox", "Administrator").wait();
    // Without that header the browser would ask for a name and a password itself.
    const asked = (url) => fetch(`${url}/api/v1/topics`, { headers: { "x-polylogue-console": "1" } }).then((answer) => answer.status);
    assert.equal(await person.page.evaluate(asked, url), 401);
  },
};

const person = await open(url, pictures);
for (const [name, run] of Object.entries(cases)) {
  try {
    await run(person);
  } catch (error) {
    await person.picture(`failed-${name}`).catch(() => {});
    await person.browser.close();
    console.error(`${name}: ${error.stack}`);
    process.exit(1);
  }
  console.log(`ok ${name}`);
}
await person.close();
