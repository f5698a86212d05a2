// A reporter for Node's test runner: a line `ok FILE: SUITE > TEST` or `fails: ...` for each test, and why where it fails.
import { basename } from 'node:path'

export default async function * names (source) {
  const path = []
  for await (const { type, data } of source) {
    if (type === 'test:start') {
      path.length = data.nesting
      path.push(data.name)
    }
    if ((type !== 'test:pass' && type !== 'test:fail') || data.details?.type === 'suite') continue
    const name = `${basename(data.file ?? '')}: ${[...path.slice(0, data.nesting), data.name].join(' > ')}`
    if (data.skip !== undefined) yield `skipped: ${name}\n`
    else if (type === 'test:pass') yield `ok ${name}\n`
    else yield `fails: ${name}\n${data.details.error?.cause?.stack ?? data.details.error}\n`
  }
}
