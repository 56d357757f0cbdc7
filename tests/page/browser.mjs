// Opens pages from the disk in a browser without a network, and does what a reader does: node browser.mjs BROWSER.
// Each line of the input is {page, steps} as JSON. STEPS are names of what is below; each answers with what it has seen,
// and a line of the output is all that was seen of a page.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { translatorSteps } from "./translate.mjs";

const require = createRequire(new URL("../../apformer/report/page/package.json", import.meta.url));
const { chromium } = require("playwright-core");

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const stepsOf = (page, file) => {
  const text = (selector) => page.locator(selector).innerText();
  const texts = (selector) => page.locator(selector).allInnerTexts();
  const frame = () =>
    page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const type = (words) => page.locator("#prompt").fill(words);

  return {
    ...translatorSteps(page, { text, texts, frame, type }),
    async open() {
      await page.goto(`file://${file}`);
      return {
        title: await page.title(),
        sections: await texts("section > h2"),
        missing: await texts(".missing"),
        about: await text(".about"),
        certificate: await text(".certificate"),
        wide: await page.evaluate(() => document.documentElement.scrollWidth > innerWidth),
      };
    },
    async faults() {
      const said = {};
      for (const words of ["", "00x 010", "07 010", "007 01", "00007"]) {
        await type(words);
        said[words] = await text("#prompt-fault");
      }
      await type("0".repeat(99));
      said.long = await text("#prompt-fault");
      await type("040 050 070");
      await page.locator("#player .primary").click();
      const uneven = await text("#player .verdict");
      await type("040 050");
      return { uneven, said, afterwards: await text("#prompt-fault"), tokens: await texts("#player .token .letter") };
    },
    async play() {
      await type("040 050");
      await page.locator("#player .primary").click();
      const written = (await texts("#player .token.written .letter")).join("");
      await page.locator("#player .token").first().click();
      await page.locator("#player .token.written").nth(1).click();
      const bars = await texts("#player .expected .number");
      return {
        written,
        verdict: await texts("#player .mark"),
        bars: bars.length,
        best: await text("#player .expected .best .letter"),
      };
    },
    async write() {
      await type("the ");
      await page.locator("#player .primary").click();
      return { written: (await texts("#player .token.written")).length, fault: await text("#prompt-fault") };
    },
    async sample() {
      await page.getByRole("button", { name: "sampled" }).click();
      await page.locator("#player .primary").click();
      const written = (await texts("#player .token.written")).length;
      await page.getByRole("button", { name: "teacher-forced" }).click();
      const bars = await page.locator("#player .token .level .bar").count();
      await page.getByRole("button", { name: "free-running" }).click();
      await page.getByRole("button", { name: "greedy" }).click();
      return { written, bars };
    },
    async attend() {
      const heads = page.locator("#attention .head");
      const before = await page.locator("#attention .card").count();
      await heads.last().click();
      await frame();
      const after = await page.locator("#attention .card").count();
      await page.locator("#attention .arcs").first().locator("text").nth(4).hover();
      await frame();
      const read = await page.locator("#attention .card .readout").first().innerText();
      await page.locator("#attention .arcs").first().locator("text").nth(5).focus();
      await page.getByRole("button", { name: "scores" }).click();
      await page.getByRole("button", { name: "weights" }).click();
      return { heads: await heads.count(), before, after, read };
    },
    async alone() {
      return {
        heads: await page.locator("#attention .head").count(),
        cards: await page.locator("#attention .card").count(),
        scale: await page.locator("#curves .unit").first().innerText(),
      };
    },
    async ablate() {
      const parts = (i) => page.locator(`#ablate .part[data-part="${i}"]`);
      const count = await page.locator("#ablate .part").count();
      const found = [];
      for (let i = 0; i < count; i++) {
        await parts(i).click();
        await page.waitForFunction((i) => document.querySelector("#ablate .live").dataset.of === String(i), i);
        found.push(
          await page
            .locator("#ablate .live")
            .evaluate((live) => ({ loss: +live.dataset.loss, exact: +live.dataset.exact })),
        );
        await parts(i).click();
      }
      await page.locator("#ablate .hide").first().click();
      const notice = await text("#player .off span");
      const verdict = await text("#player .verdict");
      await page.locator("#player .off button").click();
      return { found, notice, verdict, off: await page.locator("#player .off").isVisible() };
    },
    async cell() {
      await page.locator(".heat-cell").first().click();
      return { rows: await page.locator(".cell-examples tbody tr").count() };
    },
    async wrong() {
      const groups = await texts("#errors summary");
      await page.locator("#errors .link").first().click();
      return { groups, prompt: await page.locator("#prompt").inputValue(), fault: await text("#prompt-fault") };
    },
    async keyboard() {
      await page.locator("#prompt").focus();
      await page.keyboard.press("Enter");
      for (let i = 0; i < 3; i++) await page.keyboard.press("Tab");
      return { focus: await page.evaluate(() => document.activeElement.tagName) };
    },
    async axe() {
      await page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
      const found = [];
      const resultTypes = ["violations"];
      const ofColours = ["color-contrast", "link-in-text-block"]; // in which alone a dark page differs
      const schemes = { light: { resultTypes }, dark: { resultTypes, runOnly: ofColours } };
      for (const [colorScheme, options] of Object.entries(schemes)) {
        await page.emulateMedia({ colorScheme });
        const { violations } = await page.evaluate((options) => globalThis.axe.run(options), options);
        found.push(
          ...violations.map((v) => ({
            id: v.id,
            impact: v.impact,
            scheme: colorScheme,
            nodes: v.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 200)} ${node.failureSummary}`),
          })),
        );
      }
      return found;
    },
    async poke() {
      const buttons = page.locator("button:visible:enabled");
      for (let i = 0; i < Math.min(await buttons.count(), 20); i++) await buttons.nth(i).click({ force: true });
      await page.evaluate(() => {
        for (const element of document.querySelectorAll("#attention text, .plot *, .scatter *"))
          for (const kind of ["pointerenter", "pointermove", "focus", "click"]) element.dispatchEvent(new Event(kind));
      });
      await frame();
    },
    async canaries() {
      return page.evaluate(() => {
        const elements = [...document.querySelectorAll("*")];
        const attributes = elements.flatMap((element) => [...element.attributes]);
        return {
          ran: globalThis.ran,
          scripts: document.scripts.length,
          strange: elements.map((element) => element.localName).filter((name) => /^(i?frame|img|object|embed|link|base)$/.test(name)),
          listeners: attributes.filter(({ name }) => name.startsWith("on")).map(({ name }) => name),
          addresses: attributes
            .filter(({ name, value }) => /^(xlink:)?(href|src|action|data)$/.test(name) && !value.startsWith("#"))
            .map(({ value }) => value),
          polluted: "hostile" in {},
          title: document.title,
          text: document.body.textContent,
        };
      });
    },
    async speed() {
      const opened = await page.evaluate(() => performance.getEntriesByType("navigation")[0].domInteractive);
      const continued = await page.evaluate(() => {
        const button = document.querySelector("#player .primary");
        return Array.from({ length: 5 }, () => {
          const begun = performance.now();
          button.click();
          return performance.now() - begun;
        });
      });
      return { opened, continued };
    },
  };
};

/** What is seen of a page in a profile of its own. */
async function visit(browser, file, steps) {
  const context = await browser.newContext({
    offline: true,
    reducedMotion: "reduce",
    viewport: { width: 1200, height: 900 },
  });
  // What a text of a run would call if it were run: its names are kept, and none may be.
  await context.addInitScript(() => {
    globalThis.ran = [];
    globalThis.canary = (name) => globalThis.ran.push(String(name));
    for (const name of ["alert", "confirm", "prompt", "open", "fetch"]) globalThis[name] = () => canary(name);
    addEventListener("securitypolicyviolation", (event) => canary(`${event.violatedDirective} of ${event.blockedURI}`));
  });
  const page = await context.newPage();
  const seen = { errors: [], requests: [] };
  page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("request", (request) => request.url().startsWith("file:") || seen.requests.push(request.url()));
  try {
    const known = stepsOf(page, file);
    for (const step of steps) seen[step] = await known[step]();
  } finally {
    await context.close();
  }
  return seen;
}

const browser = await chromium.launch({ executablePath: process.argv[2], headless: true, args: FLAGS });
try {
  for await (const line of createInterface({ input: process.stdin })) {
    const { page, steps } = JSON.parse(line);
    process.stdout.write(`${JSON.stringify(await visit(browser, page, steps))}\n`);
  }
} finally {
  await browser.close();
}
