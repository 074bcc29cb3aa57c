"use strict";
// Every chart lies in a script element of JSON inside the element that it is drawn into.
const places = [...document.querySelectorAll(".chart")];
const specs = places.map((place) => JSON.parse(place.querySelector("script").textContent));
const atNight = window.matchMedia("(prefers-color-scheme: dark)");
const DARK = JSON.parse(document.getElementById("dark").textContent);

// The colours of paper and ink as a dark page has them; in columns a cell that is a colour, and nothing else.
const CELL = /(?<=^|,)#[0-9A-F]{6}(?=,|$$)/gm;
const darkened = (value) => {
  if (typeof value === "string")
    return DARK[value] || (value.includes("\n") ? value.replace(CELL, (one) => DARK[one] || one) : value);
  if (Array.isArray(value)) return value.map(darkened);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, darkened(one)]));
};

let signals = {};
const draw = () => Promise.all(places.map(async (place, number) => {
  const old = place.querySelector(".drawn");
  if (old) old.remove();
  const slider = place.dataset.slider;
  if (slider) document.querySelector(slider).replaceChildren();
  const options = {
    mode: "vega-lite",
    renderer: place.dataset.renderer,
    bind: slider || undefined,
    actions: {export: {svg: true, png: true}, source: false, compiled: false, editor: false},
    downloadFileName: place.id,
  };
  const canvas = place.appendChild(document.createElement("div"));
  canvas.className = "drawn";
  const spec = atNight.matches ? darkened(specs[number]) : specs[number];
  const {view} = await vegaEmbed(canvas, spec, options);
  for (const [name, value] of Object.entries(signals)) if (has(view, name)) view.signal(name, value);
  return view.runAsync();
}));
const has = (view, name) => Object.hasOwn(view.getState({signals: (one) => one === name}).signals, name);

// The views, for a look at the data in the browser's console.
window.closeby = draw();
atNight.addEventListener("change", async () => {
  for (const view of await window.closeby) {
    for (const name of ["stop", "sought"]) if (has(view, name)) signals[name] = view.signal(name);
    view.finalize();
  }
  window.closeby = draw();
});

// Tables of which a part is out of sight say so; those in a closed part of the page once it is opened.
const sizes = new ResizeObserver((entries) => {
  for (const {target} of entries) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1);
});
for (const table of document.querySelectorAll(".table")) sizes.observe(table);

// Search: what matches stands out on the maps, is described in words, and is all that tables and explanations show.
const box = document.getElementById("sought");
if (box) {
  const {jobs, stops, unit, left} = JSON.parse(document.getElementById("jobs").textContent);
  const found = document.getElementById("found");
  const rows = [...document.querySelectorAll(".table tr:has(td)")].map((row) => [row, row.textContent.toLowerCase()]);
  const parts = [...document.querySelectorAll("details[data-name]")];
  const MOST = 5;
  const when = ([, , first, last]) => {
    if (first === undefined) return "";
    if (first < 0) return "; at none of the moments that the slider has";
    return "; on the map from " + stops[first] + " " + unit + " to " + stops[last] + " " + unit;
  };
  const seek = async () => {
    const text = box.value.trim().toLowerCase();
    const exact = jobs.filter(([name]) => text && (name.toLowerCase() === text || name.toLowerCase().endsWith("/" + text)));
    const matching = exact.length ? exact : text ? jobs.filter(([name]) => name.toLowerCase().includes(text)) : [];
    const lines = matching.slice(0, MOST).map((job) => job[0] + ": " + job[1] + when(job));
    if (matching.length > MOST) lines.push("… and " + (matching.length - MOST) + " more");
    if (text && !matching.length) lines.push("Nothing of this name is in the report." + (left ? " " + left : ""));
    found.replaceChildren(...lines.map((line) => {
      const item = document.createElement("li");
      item.textContent = line;
      return item;
    }));
    const shown = rows.filter(([, said]) => said.includes(text)).map(([row]) => row.closest("table"));
    for (const [row, said] of rows)
      row.classList.toggle("hidden", shown.includes(row.closest("table")) && !said.includes(text));
    const names = new Set(matching.map(([name]) => name));
    for (const part of parts) part.classList.toggle("hidden", Boolean(text) && !names.has(part.dataset.name));
    const literal = (name) => name.toLowerCase().replace(/[.*+?^$${}()|[\]\\]/g, "\\$$&");
    const pattern = !text ? "" : exact.length ? "^(" + exact.map(([name]) => literal(name)).join("|") + ")$$"
      : literal(text);
    for (const view of await window.closeby) {
      if (!has(view, "sought")) continue;
      view.signal("sought", pattern);
      const job = matching.find((one) => one[2] >= 0);
      if (job && has(view, "stop")) {
        const at = view.signal("stop");
        if (!matching.some((one) => one[2] >= 0 && one[2] <= at && at <= one[3])) view.signal("stop", job[2]);
      }
      await view.runAsync();
    }
  };
  let waits;
  box.addEventListener("input", () => {
    clearTimeout(waits);
    waits = setTimeout(() => { window.searched = seek(); }, 120);
  });
}
