// What the API answers, held against its own description (/api/v1/openapi.json).
import assert from "node:assert/strict";
import Ajv from "ajv/dist/2020.js";

// `ask` asks for a path; `names` has an object of each kind whose path names one.
export async function answersAreAsDescribed(ask, names) {
  const { value: document } = await ask("/openapi.json");
  // Formats of integers are not JSON Schema's.
  const ajv = new Ajv({ strict: false, validateFormats: false });
  ajv.addSchema({ $id: "api", components: document.components });
  const validator = (path, status) => {
    const schema = document.paths[path].get.responses[status].content["application/json"].schema;
    return ajv.compile(JSON.parse(JSON.stringify(schema).replaceAll('"#/components', '"api#/components')));
  };
  let tried = 0;
  for (const [path, methods] of Object.entries(document.paths)) {
    if (!methods.get) continue;
    const scopes = path.endsWith("{scope}") ? ["node", "cluster"] : ["groups"];
    for (const scope of scopes) {
      const kind = ["queues", "groups", "topics"].find((kind) => path.includes(`/${kind}/`)) ?? "groups";
      const real = path.replace("{vhost}", "%2F").replace("{scope}", scope).replace("{name}", names[kind]);
      const { status, value } = await ask(real);
      assert.equal(status, 200, real);
      const validate = validator(path, "200");
      assert.ok(validate(value), `${real} is not what it is said to be: ${ajv.errorsText(validate.errors)}\n${JSON.stringify(value).slice(0, 2000)}`);
      tried += 1;
    }
  }
  assert.ok(tried > 20, `${tried} paths were tried`);
  const refused = validator("/topics/{name}", "default");
  assert.ok(refused((await ask("/topics/none")).value));
  assert.ok(!refused({ error: "something else" }), "the description says something");
}
