// A browser, and what people do with it: find things by what they are called, click, write, read.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import puppeteer from "puppeteer-core";

const PATIENCE_MS = 15_000;
const DESKTOP = { width: 1280, height: 860 };
export const PHONE = { width: 390, height: 780, deviceScaleFactor: 2 };

export async function open(url, pictures) {
  await mkdir(pictures, { recursive: true });
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM,
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"],
  });
  const page = await browser.newPage();
  await page.setViewport(DESKTOP);
  page.setDefaultTimeout(PATIENCE_MS);
  return new Person(browser, page, url, pictures);
}

export class Person {
  // What went wrong in the page without anybody having seen it.
  faults = [];

  constructor(browser, page, url, pictures) {
    Object.assign(this, { browser, page, url, pictures });
    page.on("pageerror", (error) => this.faults.push(String(error)));
    page.on("console", (message) => {
      // A browser writes a line for each answer that is no success; whether that is as it should be is seen elsewhere.
      if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) this.faults.push(message.text());
    });
  }

  // Goes to a page of the console.
  async go(place) {
    await this.page.goto(`${this.url}/console/#/${place}`);
  }

  // An element with this role and name, as a screen reader announces it.
  find(role, name, within = "") {
    return this.page.locator(`${within} ::-p-aria([name="${name}"][role="${role}"])`.trim());
  }

  async click(role, name, within) {
    await this.find(role, name, within).click();
  }

  // Writes into a field of the dialog that is open, or of the page.
  async write(label, text) {
    const field = await this.find("textbox", label).waitHandle();
    await field.focus();
    await this.page.keyboard.down("Control");
    await this.page.keyboard.press("a");
    await this.page.keyboard.up("Control");
    await this.page.keyboard.type(text);
  }

  // What is in a field.
  async says(label, text) {
    const field = await this.find("textbox", label).waitHandle();
    assert.equal(await field.evaluate((field) => field.value), text, label);
  }

  // Waits until the page has been drawn anew by what it asks for again and again: with the second answer the first one has been shown.
  async turns() {
    for (let answers = 0; answers < 2; answers++) {
      await this.page.waitForResponse((answer) => answer.url().endsWith("/api/v1/status"));
    }
  }

  async choose(label, value) {
    const field = await this.find("combobox", label).waitHandle();
    await field.select(value);
  }

  // Waits until the page says this.
  async sees(text, where = "body") {
    const there = (where, text) => document.querySelector(where)?.innerText.includes(text);
    try {
      await this.page.waitForFunction(there, { timeout: PATIENCE_MS }, where, text);
    } catch {
      const said = await this.page.$eval("body", (body) => body.innerText);
      assert.fail(`"${text}" is not seen in ${where}; the page says:\n${said}`);
    }
  }

  // Waits until the page does not say it any more.
  async misses(text, where = "main") {
    const gone = (where, text) => !document.querySelector(where)?.innerText.includes(text);
    await this.page.waitForFunction(gone, { timeout: PATIENCE_MS }, where, text);
  }

  // Goes through a dialog that asks before something is destroyed.
  async confirm(action, name) {
    if (name !== undefined) await this.write("Name", name);
    await this.click("button", action, "dialog");
    await this.gone();
  }

  // Waits until no dialog is open.
  async gone() {
    await this.page.waitForFunction(() => !document.querySelector("dialog"), { timeout: PATIENCE_MS });
  }

  // A picture from the top of the page, without what is said for a moment.
  async picture(name) {
    await this.page.evaluate(() => {
      scrollTo(0, 0);
      document.querySelector(".toasts")?.setAttribute("hidden", "");
    });
    await this.page.screenshot({ path: `${this.pictures}/${name}.png` });
    await this.page.evaluate(() => document.querySelector(".toasts")?.removeAttribute("hidden"));
  }

  // That nothing stands out of the page to the right.
  async fits() {
    const [wide, room] = await this.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= room, `the page is ${wide} pixels wide on a screen of ${room}`);
  }

  async close() {
    await this.browser.close();
    assert.deepEqual(this.faults, [], "the page's own errors");
  }
}
