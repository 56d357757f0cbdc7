// What a reader does with the page of a translator: steps for browser.mjs.
export const translatorSteps = (page, { text, texts, frame, type }) => ({
  async sentences() {
    const said = {};
    for (const [name, words] of Object.entries({ empty: " ", long: "7 ".repeat(200), new: "zürich 🙂 705" })) {
      await type(words);
      said[name] = await text("#prompt-fault");
    }
    await page.locator("#prompt").evaluate((field) => {
      field.value = "7\ud800";
      field.dispatchEvent(new Event("input"));
    });
    said.half = await text("#prompt-fault");
    await type("705");
    return { said, afterwards: await text("#prompt-fault"), source: await texts("#player .source .letter") };
  },
  async translate() {
    await page.locator("#player .chip").first().click();
    const written = await texts("#player .token.written .letter");
    await page.locator("#player .token.written").nth(1).click();
    const read = await page.locator("#player .source .token").evaluateAll((all) =>
      all.map((token) => Number(token.style.getPropertyValue("--read"))),
    );
    return {
      written,
      source: await texts("#player .source .letter"),
      read: read.reduce((a, b) => a + b, 0),
      verdict: await text("#player .verdict"),
      note: await text("#prompt-note"),
      bars: (await texts("#player .expected .number")).length,
    };
  },
  async beams() {
    await page.locator("#player .chip").first().click();
    await page.getByRole("slider", { name: "beams" }).fill("4");
    await page.getByRole("slider", { name: "length penalty" }).fill("1");
    await page.locator("#player .primary").click();
    const cells = () => page.locator("#player .beams tbody tr").evaluateAll((rows) =>
      rows.map((row) => [...row.children].map((cell) => cell.textContent)),
    );
    const found = await cells();
    const best = await texts("#player .token.written .letter");
    await page.locator("#player .beams .link").last().click();
    const last = await texts("#player .token.written .letter");
    await page.getByRole("button", { name: "greedy" }).click();
    await page.locator("#player .primary").click();
    const hidden = await page.locator("#player .beams").isHidden();
    await page.getByRole("button", { name: "beam search" }).click();
    return { found, best, last, hidden };
  },
  async force() {
    await page.getByRole("button", { name: "teacher-forced" }).click();
    const held = await page.locator("#translation").inputValue();
    await page.locator("#translation").fill("seven");
    const seen = { held, letters: await texts("#player .token.written .letter"), cost: await text("#player .verdict") };
    await page.locator("#translation").fill("");
    seen.fault = await text("#translation-fault");
    await page.getByRole("button", { name: "free-running" }).click();
    await page.getByRole("button", { name: "sampled" }).click();
    await page.locator("#player .primary").click();
    await page.getByRole("button", { name: "greedy" }).click();
    return seen;
  },
  async across() {
    await page.locator("#player .chip").nth(1).click();
    await frame();
    const kinds = await texts("#attention .heads h3");
    const heads = page.locator("#attention .head");
    await heads.last().click();
    await frame();
    const cards = await texts("#attention .card h3");
    await page.locator("#attention .arcs").first().getByRole("button").nth(1).hover();
    await frame();
    const read = await page.locator("#attention .card .readout").first().innerText();
    await page.getByRole("button", { name: "scores" }).click();
    await page.getByRole("button", { name: "weights" }).click();
    return { kinds, heads: await heads.count(), cards, read };
  },
});
