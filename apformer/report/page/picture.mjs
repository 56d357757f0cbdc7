// Takes the picture of a page that README.md shows: node picture.mjs BROWSER REPORT.html PICTURE.png
import { chromium } from "playwright-core";

const [, , executablePath, report, picture] = process.argv;
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage({ viewport: { width: 1200, height: 1610 }, reducedMotion: "reduce" });
await page.goto(`file://${report}`);
await page.waitForSelector("main");
await page.screenshot({ path: picture });
await browser.close();
