"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byName = new Map(data.images.map((image) => [image.name, image]));
const fleet = document.getElementById("fleet");
const detail = document.getElementById("detail");
const filters = document.getElementById("filters");
const form = filters.querySelector("form");
const rows = [...fleet.querySelectorAll("tbody tr")];

// Elements. Texts become text nodes, never markup; words in backticks become code.

function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== "" && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  const isPlain = ["code", "pre", "option"].includes(name);
  const parts = (child) => isPlain || typeof child !== "string" ? child
    : child.split(/`([^`]*)`/).map((text, index) => index % 2 ? h("code", {}, text) : text);
  element.append(...children.flat(Infinity).flatMap(parts).filter((child) => child !== "" && child !== false && child !== null && child !== undefined));
  return element;
}

function table(title, heads, lines) {
  const cell = (value, column) =>
    value instanceof Element && value.matches("td") ? value : h(column ? "td" : "th", { scope: !column && "row" }, value);
  return h("div", { class: "scroll", role: "region", "aria-label": title, tabindex: 0 },
    h("table", {},
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, lines.map((line) => h("tr", {}, line.map(cell))))));
}

function section(title, ...content) {
  return h("section", { "aria-label": title }, h("h3", {}, title), content);
}

function more(summary, content, isOpen) {
  // Long lists are made when they are opened
  const details = h("details", {}, h("summary", {}, summary));
  details.addEventListener("toggle", () => details.append(...content()), { once: true });
  details.open = Boolean(isOpen);
  return details;
}

const number = (text) => h("td", { class: "number" }, text);
const link = (url, text) => /^https:\/\//.test(url) ? h("a", { href: url, rel: "noreferrer" }, text) : text === url ? url : `${text} ${url}`;
const imageLink = (name) => h("a", { href: `#image/${encodeURIComponent(name)}` }, name);
const list = (items) => h("ul", {}, items.map((item) => h("li", {}, item)));
const count = (items, noun) => `${items.toLocaleString("en")} ${noun}${items === 1 ? "" : "s"}`;
const outcome = (text) => h("td", { class: { passed: "done", failed: "failed" }[text] ?? "unknown" }, text);

function bytes(size) {
  if (size < 1e5) return size < 1e3 ? `${size} bytes` : `${(size / 1e3).toFixed(0)} kB`;
  return size < 999.95e6 ? `${(size / 1e6).toFixed(1)} MB` : `${(size / 1e9).toFixed(2)} GB`;
}

function seconds(time) {
  if (time < 99.5) return time < 9.95 ? `${time.toFixed(1)} s` : `${time.toFixed(0)} s`;
  const whole = Math.round(time);
  const minutes = `${Math.floor(whole / 60) % 60}`;
  const rest = `${whole % 60}`.padStart(2, "0");
  return whole < 3600 ? `${minutes}:${rest}` : `${Math.floor(whole / 3600)}:${minutes.padStart(2, "0")}:${rest}`;
}

function bar(start, length) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const shape = { x: 100 * start, width: Math.max(0.5, 100 * length), height: 10 };
  for (const [key, value] of Object.entries(shape)) rect.setAttribute(key, value);
  for (const [key, value] of Object.entries({ class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": true })) {
    svg.setAttribute(key, value);
  }
  svg.append(rect);
  return svg;
}

function spot(index) {
  const [path, line, text] = data.places[index];
  return h("small", {}, `${path}:${line}`, text && h("code", {}, text));
}

// Views

function imageView(image) {
  return [
    h("p", {}, image.summary),
    h("p", {}, h("small", {}, data.places[image.place].slice(0, 2).join(":"))),
    section("State", h("dl", {}, Object.entries(data.columns).map(([key, title]) => {
      const { mark, text } = image.states[key];
      return [h("dt", {}, title), h("dd", {}, h("span", { class: mark }, text), " ", image.states[key].note)];
    }))),
    image.parts.length ? section("Versions and why", versions(image)) : "",
    image.warnings.length ? section("Known problems", list(image.warnings.map(([text, url]) => [text, " ", link(url, url)]))) : "",
    section("Tests", tests(image.tests)),
    section("Start a job", job(image)),
    section("Instance types", instances(image)),
    section("Releases", releases(image)),
    since(image),
    section("Compare", comparison(image)),
    section("Bytes", sizes(image)),
    section("Layers", layers(image)),
    section("Packages", packages(image)),
  ];
}

function versions(image) {
  return table("Versions and why", ["Component", "Version", "Variant", "Why"], image.parts.map((part) => [
    part.name,
    [part.version, part.newest === part.version ? "" : h("small", {}, ` newest: ${part.newest}`)],
    part.variant,
    more(part.why[0]?.text ?? "the base of the image", () => [
      list(part.why.map((why) => [why.text, " ", spot(why.place)])),
      part.newer.length ? [h("p", {}, "Newer versions:"), list(part.newer.map((why) => [why.text, " ", spot(why.place)]))] : "",
      h("p", {}, "Declared in ", spot(part.place), part.source && [" ", link(part.source, "source")]),
      Object.keys(part.provides).length ? h("p", {}, "Provides ", Object.entries(part.provides).map((pair) => pair.join(" ")).join(", ")) : "",
    ].flat().filter(Boolean)),
  ]));
}

function tests(report) {
  if (!report.checks.length) return h("p", { class: "unknown" }, "not recorded");
  const order = ["failed", "not tested", "passed"];
  const checks = [...report.checks].sort((one, other) => order.indexOf(one.outcome) - order.indexOf(other.outcome));
  const facts = [report.machine && `on ${report.machine}`, report.date, report.transport && `transport: ${report.transport}`];
  return [
    h("p", {}, facts.filter(Boolean).join(", ")),
    table("Tests", ["Check", "Result", "Needs GPUs", "Time", "Details"], checks.map((check) => [
      check.name,
      outcome(check.outcome),
      check.on_gpus ? "yes" : "no",
      number(check.seconds === null ? "" : seconds(check.seconds)),
      [
        [check.reason, check.rank && `on ${check.rank}`].filter(Boolean).join("; "),
        check.tail.length ? more("Last lines", () => [h("pre", { tabindex: 0 }, check.tail.join("\n"))], true) : "",
        check.outcome === "failed" && h("small", {}, ` ${check.source} log: ${check.log}`),
      ],
    ])),
  ];
}

function job(image) {
  const code = Object.entries(image.code);
  if (code.length) return code.map(([sdk, text]) => [h("p", {}, `Newest release, ${sdk}:`), h("pre", { tabindex: 0 }, text)]);
  return h("p", {}, "Not released yet. ", h("code", {}, `bake release ${image.name}`),
    " publishes one, and ", h("code", {}, `bake validate ${image.name}`), " checks the settings of a job without it.");
}

function instances(image) {
  const types = image.instances.map((index) => data.instances[index]);
  const text = (value) => number(value === null ? "unknown" : `${value}`);
  return more(count(types.length, "type"), () => [
    table("Instance types", ["Type", "vCPUs", "Memory (GiB)", "GPUs", "GPU architecture", "EFA"], types.map((type) => [
      type.name, text(type.vcpus), text(type.memory_gib), text(type.gpus), type.gpu_architecture, text(type.efa_interfaces),
    ])),
  ], types.length <= 12);
}

function releases(image) {
  if (!image.releases.length) return h("p", { class: "unknown" }, "not recorded");
  return [
    table("Releases", ["Date", "Changes", "State", "Image URI", "Tags", "Size", "Commit"], image.releases.map((release) => [
      day(release.date),
      changes(release),
      [release.state, release.is_current ? "" : h("small", {}, " of an earlier recipe")],
      h("code", {}, release.image_uri),
      release.tags.join(", "),
      number(release.bytes ? bytes(release.bytes) : "unknown"),
      h("code", {}, release.revision.slice(0, SHORT_COMMIT)),
    ])),
  ];
}

const FEW_CHANGES = 3;
const SHORT_COMMIT = 12;
const day = (text) => h("span", { class: "day" }, text);

function changes(release) {
  if (release.since === null) return "";
  if (!release.since) return "first release";
  if (!release.changes.length) return `none since ${release.since}`;
  return few(release.changes.map(changeText));
}

function changeText({ kind, name, before, after }) {
  if (before === null) return `${name} ${after} added`;
  return after === null ? `${name} ${before} removed` : `${name || kind} ${before || "none"} → ${after || "none"}`;
}

function few(lines) {
  const rest = lines.slice(FEW_CHANGES);
  return [list(lines.slice(0, FEW_CHANGES)), rest.length ? more(`${rest.length} more`, () => [list(rest)]) : ""];
}

function sizes(image) {
  const most = Math.max(...image.downloads.map((row) => row.bytes), 1);
  const downloads = table("Downloads", ["Downloads of a build", "Bytes", "Share"], image.downloads.map((row) => [
    row.name, number(`${row.is_complete ? "" : "at least "}${bytes(row.bytes)}`), bar(0, row.bytes / most),
  ]));
  return [
    h("p", {}, "The map shows the downloads of a build, compressed. ", h("code", {}, `bake sizes ${image.name}`), " prints the sizes of the built image."),
    treemap("Downloads by component and package", image.downloads.map(({ name, bytes: size, packages }) => {
      const areas = packages.map((index) => ({ name: data.packages[index][0], size: data.packages[index][2] }));
      return { name, areas: [...areas, { name: "other files", size: size - total(areas) }] };
    })),
    downloads,
  ];
}

const total = (areas) => areas.reduce((sum, area) => sum + area.size, 0);
const SMALL_SHARE = 0.002;

function treemap(title, groups) {
  // One stop of the Tab key; arrow keys select an area. The table below has the same content
  const whole = groups.reduce((sum, group) => sum + total(group.areas), 0);
  const bySize = (one, other) => other.size - one.size;
  const shown = groups.map(({ name, areas }) => {
    const large = areas.filter((area) => area.size >= SMALL_SHARE * whole);
    const small = areas.filter((area) => area.size > 0 && area.size < SMALL_SHARE * whole);
    const rest = small.length > 1 ? [{ name: `${small.length} others`, size: total(small) }] : small;
    return { name, areas: [...large, ...rest].sort(bySize), size: total(areas) };
  }).filter((group) => group.size > 0).sort(bySize);
  if (!shown.length) return "";
  const [width, height] = [detail.clientWidth || 800, 480];
  const share = (size) => `${(100 * size / whole).toFixed(1)} %`;
  const options = [];
  const boxes = squarify(shown.map((group) => group.size), width, height);
  const list = h("div", { class: "treemap", role: "listbox", "aria-label": title, tabindex: 0 }, shown.map((group, index) => {
    const box = boxes[index];
    const [isWide, isHigh] = [box.width > 50, box.height > 40];
    const inside = { width: box.width - 4, height: box.height - (isWide && isHigh ? 22 : 4) };
    const areas = squarify(group.areas.map((area) => area.size), Math.max(inside.width, 1), Math.max(inside.height, 1));
    const element = h("div", { role: "group", "aria-label": `${group.name}, ${bytes(group.size)}`, title: group.name },
      isWide && isHigh && h("div", { class: "head", "aria-hidden": "true" }, `${group.name} ${bytes(group.size)}`),
      h("div", { class: "inside", role: "presentation" }, group.areas.map((area, position) => {
        const label = `${group.name}, ${area.name}: ${bytes(area.size)}, ${share(area.size)}`;
        const hasText = areas[position].width > 40 && areas[position].height > 16;
        const option = h("div", { role: "option", id: `area-${options.length}`, "aria-label": label, "aria-selected": "false", title: label },
          hasText && area.name.split("/").slice(areas[position].width > 110 ? -2 : -1).join("/"));
        options.push(option);
        return place(option, areas[position], inside);
      })));
    element.style.setProperty("--hue", `${(index * 47 + 210) % 360}`);
    return place(element, box, { width, height });
  }));
  const picked = h("p", { class: "picked" }, "Select an area to read its name and size.");
  let current = -1;
  const select = (index) => {
    options[current]?.setAttribute("aria-selected", "false");
    current = Math.min(Math.max(index, 0), options.length - 1);
    options[current].setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", options[current].id);
    picked.textContent = options[current].getAttribute("aria-label");
  };
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) select(options.indexOf(option));
  });
  list.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: current + 1, ArrowDown: current + 1, ArrowLeft: current - 1, ArrowUp: current - 1, Home: 0, End: options.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    select(moves[event.key]);
  });
  return [list, picked, more("The map as a table", () => [
    table(title, ["Component", "Part", "Bytes", "Share"], shown.flatMap((group) =>
      group.areas.map((area) => [group.name, area.name, number(bytes(area.size)), number(share(area.size))]))),
  ])];
}

function place(element, box, { width, height }) {
  // The policy forbids style attributes, but not this
  const percent = (part, whole) => `${100 * part / whole}%`;
  Object.assign(element.style, {
    left: percent(box.x, width), top: percent(box.y, height), width: percent(box.width, width), height: percent(box.height, height),
  });
  return element;
}

function squarify(sizes, width, height) {
  // Bruls, Huizing, van Wijk: "Squarified Treemaps" (2000). The sizes are positive, the largest is the first
  const boxes = [];
  let [x, y, left] = [0, 0, sizes.reduce((sum, size) => sum + size, 0)];
  for (let start = 0; start < sizes.length;) {
    const [isTall, side] = [width - x < height - y, Math.min(width - x, height - y)];
    const scale = (width - x) * (height - y) / left;
    const worst = (sum, end) => Math.max(side ** 2 * sizes[start] / (scale * sum ** 2), scale * sum ** 2 / (side ** 2 * sizes[end]));
    let [end, sum] = [start, sizes[start]];
    while (end + 1 < sizes.length && worst(sum + sizes[end + 1], end + 1) <= worst(sum, end)) sum += sizes[++end];
    const depth = scale * sum / side;
    for (let along = 0; start <= end; start++) {
      const length = side * sizes[start] / sum;
      boxes.push(isTall ? { x: x + along, y, width: length, height: depth } : { x, y: y + along, width: depth, height: length });
      along += length;
    }
    [x, y, left] = isTall ? [x, y + depth, left - sum] : [x + depth, y, left - sum];
  }
  return boxes;
}

function layers(image) {
  return table("Layers", ["Component", "Build key", "Shared with"], image.stages.map((stage) => {
    const others = data.images.filter((other) => other !== image && other.stages.includes(stage));
    const [key, title] = data.stages[stage];
    const names = () => [list(others.map((other) => imageLink(other.name)))];
    return [title, h("code", {}, key.slice(0, 8)), others.length ? more(count(others.length, "image"), names) : "no other image"];
  }));
}

function packages(image) {
  return [
    h("p", {}, "Locked packages. Those of a vendor's base are not recorded."),
    Object.entries(image.packages).map(([kind, indices]) => more(count(indices.length, `${kind} package`), () => [
      table(`Packages of ${kind}`, ["Package", "Version", "Bytes"], indices.map((index) => {
        const [name, version, size] = data.packages[index];
        return [name, version, number(bytes(size))];
      })),
    ])),
  ];
}

function comparison(image) {
  // Releases of other images would be thousands of options in a large fleet
  const own = [
    [image.name, () => subject(image)],
    ...image.releases.map((release) => [`${image.name}, ${release.state} ${release.date} ${release.image_uri.slice(-8)}`, () => released(release)]),
  ];
  const others = data.images.filter((each) => each !== image).map((each) => [each.name, () => subject(each)]);
  const choices = [...own, ...others];
  const select = (offered, chosen) => h("select", {}, h("option", { value: -1 }, "choose an image or a release"),
    offered.map(([name], index) => h("option", { value: index, selected: name === chosen }, name)));
  const [first, second] = [select(own, image.name), select(choices, "")];
  const status = h("p", { role: "status" });
  const result = h("div", {});
  const update = () => {
    const [before, after] = [first, second].map((each) => choices[each.value]?.[1]());
    const isComplete = before && after;
    result.replaceChildren(...(isComplete ? differences(before, after) : []));
    status.textContent = isComplete ? count(result.querySelectorAll("tbody tr").length, "difference") : "";
  };
  for (const each of [first, second]) each.addEventListener("change", update);
  return [h("div", { class: "fields" }, h("label", {}, "Compare", first), h("label", {}, "with", second)), status, result];
}

const WHOLE = "Size of the image, as pushed";
const sized = (rows) => new Map(rows.map(([name, size]) => [name, { version: bytes(size), size }]));

function subject(image) {
  const named = (rows) => new Map(rows.map(([name, version, size]) => [name, { version, size }]));
  return {
    Components: new Map(image.parts.map((part) => [part.name, { version: `${part.version} ${part.variant}`.trim() }])),
    ...Object.fromEntries(Object.entries(image.packages).map(([kind, indices]) =>
      [`${kind} packages`, named(indices.map((index) => data.packages[index]))])),
    Tests: new Map(image.tests.checks.map((check) => [check.name, { version: check.outcome }])),
    Downloads: sized(image.downloads.map((row) => [row.name, row.bytes])),
  };
}

function released(release) {
  const pairs = (items) => new Map(items.map(([name, version]) => [name, { version }]));
  return {
    Components: pairs(release.parts),
    Tests: pairs(release.checks),
    [WHOLE]: sized(release.bytes ? [["image", release.bytes]] : []),
  };
}

function differences(before, after) {
  const kinds = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return kinds.flatMap((kind) => {
    // A fact that only one of them has recorded is not a difference
    if (!before[kind]?.size || !after[kind]?.size) return [h("h4", {}, kind), h("p", { class: "unknown" }, "not recorded for both")];
    const names = [...new Set([...before[kind].keys(), ...after[kind].keys()])].sort();
    const lines = names
      .map((name) => [name, before[kind].get(name), after[kind].get(name)])
      .filter(([, old, now]) => old?.version !== now?.version)
      .map(([name, old, now]) => [
        name, old?.version ?? "none", now?.version ?? "none",
        number(old?.size || now?.size ? change((now?.size ?? 0) - (old?.size ?? 0)) : ""),
      ]);
    const same = names.length - lines.length;
    return [
      h("h4", {}, kind),
      lines.length ? table(`Differences: ${kind}`, ["Name", "First", "Second", "Bytes"], lines) : "",
      h("p", {}, `${same} equal, ${lines.length} different`),
    ].filter(Boolean);
  });
}

const change = (size) => `${size < 0 ? "−" : "+"}${bytes(Math.abs(size))}`;

const MOST_CHANGED = 100;

function changesView() {
  const { revision, commit, changed, added, removed, same } = data.since;
  const rows = (images) => table("Changed images", ["Image", ...CHANGE_HEADS], images.map((each) => [imageLink(each.image), ...changeCells(each)]));
  const rest = changed.slice(MOST_CHANGED);
  const now = data.commit ? ["commit ", h("code", {}, data.commit.slice(0, SHORT_COMMIT)), data.commit.endsWith("-dirty") ? " with uncommitted changes" : ""] : "the present state";
  return [
    h("p", {}, `From ${revision}, commit `, h("code", {}, commit.slice(0, SHORT_COMMIT)), ", to ", now),
    h("p", {}, `${count(changed.length, "changed image")}, ${added.length} added, ${removed.length} removed, ${same} with the same recipe and components`),
    changed.length ? rows(changed.slice(0, MOST_CHANGED)) : "",
    rest.length ? more(count(rest.length, "more changed image"), () => [rows(rest)]) : "",
    added.length ? section("Added images", list(added.map((name) => imageLink(name)))) : "",
    removed.length ? section("Removed images", list(removed)) : "",
  ];
}

const CHANGE_HEADS = ["Components", "Packages", "Recipe and files", "Tests", "Size as pushed"];

function changeCells(each) {
  if (each.problem) return [each.problem, "", "", "", ""];
  const lines = (items) => items.length ? few(items) : "equal";
  const unknown = () => h("span", { class: "unknown" }, "not recorded for both");
  const [before, after] = [each.bytes_before, each.bytes_after];
  const isSized = before !== null && after !== null;
  const isNewBuild = !each.components.length && !each.packages.length && !each.recipe.length;
  return [
    lines(each.components.map(changeText)),
    each.packages.length ? each.packages.map(packageChanges) : "equal",
    isNewBuild ? "files, templates or Bakehouse itself" : lines(each.recipe),
    each.tests === null ? unknown() : lines(each.tests.map(changeText)),
    isSized ? before === after ? "equal" : `${bytes(before)} → ${bytes(after)} (${change(after - before)})` : unknown(),
  ];
}

function packageChanges(group) {
  const download = group.bytes_after - group.bytes_before;
  return more(`${count(group.changes.length, `${group.kind} package`)}, ${download ? change(download) : "no byte"} to download`, () => [
    table(`Changed ${group.kind} packages`, ["Package", "Before", "After"], group.changes.map(({ name, before, after }) => [name, before ?? "none", after ?? "none"])),
  ]);
}

function since(image) {
  if (!data.since) return "";
  const title = `Changes since ${data.since.revision}`;
  const each = data.since.changed.find(({ image: name }) => name === image.name);
  if (!each) return section(title, h("p", {}, data.since.added.includes(image.name) ? "The image was added." : "same recipe and components"));
  const cells = changeCells(each);
  return section(title, h("dl", {}, CHANGE_HEADS.map((head, index) => [h("dt", {}, head), h("dd", {}, cells[index])])));
}

const NEWEST = 200;

function timelineView() {
  const released = data.images.flatMap((image) =>
    image.releases.filter((release) => release.since !== null).map((release) => ({ image, release })));
  // The sort keeps the order of an image's releases on one day
  released.sort((one, other) => one.release.date < other.release.date ? 1 : one.release.date > other.release.date ? -1 : 0);
  if (!released.length) {
    return [h("p", { class: "unknown" }, "not recorded"), h("p", {}, h("code", {}, "bake release"), " adds the first release to the ledger.")];
  }
  const days = new Set(released.map(({ release }) => release.date)).size;
  const rows = (items) => table("Timeline", ["Date", "Image", "Changes since its release before", "Digest"], items.map(({ image, release }) => [
    day(release.date), imageLink(image.name), changes(release), h("code", {}, release.image_uri.split("@")[1].slice(0, 19)),
  ]));
  const older = released.slice(NEWEST);
  return [
    h("p", {}, `${count(released.length, "release")} on ${count(days, "day")}, newest first`),
    rows(released.slice(0, NEWEST)),
    older.length ? more(`${count(older.length, "older release")}`, () => [rows(older)]) : "",
  ];
}

function builderOf({ builder }) {
  // The log has the builders that were named for the build
  if (!builder) return "Engine of this machine";
  return builder.includes(", ") ? `One of the builders ${builder}` : `Builder: ${builder}`;
}

function buildsView() {
  if (!data.builds.length) {
    return [h("p", { class: "unknown" }, "not recorded"), h("p", {}, h("code", {}, "bake build"), " records the time of each step on the machine that runs it.")];
  }
  return data.builds.map((build) => {
    const end = Math.max(...build.steps.map((step) => step.started + step.seconds), 0.001);
    const stages = new Map();
    for (const step of build.steps) {
      // Stages of one name differ in their images
      const key = JSON.stringify([step.stage, step.images]);
      stages.set(key, [...(stages.get(key) ?? []), step]);
    }
    const cached = build.steps.filter((step) => step.cached).length;
    const line = (steps) => {
      const { stage, images } = steps[0];
      const ran = steps.filter((step) => !step.cached);
      const start = Math.min(...ran.map((step) => step.started));
      const stop = Math.max(...ran.map((step) => step.started + step.seconds));
      const row = ran.length ? [number(seconds(stop - start)), number(seconds(start))] : [number("cached"), ""];
      return [
        more(stage || "export", () => [list(steps.map((step) => `${step.text}: ${step.cached ? "cached" : seconds(step.seconds)}`))]),
        ...row, number(`${steps.length}`), number(`${steps.length - ran.length}`),
        images.length < 4 ? images.join(", ") : count(images.length, "image"),
        ran.length ? bar(start / end, (stop - start) / end) : "",
      ];
    };
    const chart = (title, rows) => table(title, ["Stage", "Time", "Start", "Steps", "Cached", "Images", "Timeline"], rows.map(line));
    const fromCache = [...stages.values()].filter((steps) => steps.every((step) => step.cached));
    const others = [...stages.values()].filter((steps) => !fromCache.includes(steps));
    return section(build.started,
      h("p", {}, `${builderOf(build)}; ${seconds(end)}; `
        + `${cached} of ${count(build.steps.length, "step")} from the cache`),
      others.length ? chart(`Build of ${build.started}`, others) : "",
      fromCache.length ? more(`${count(fromCache.length, "stage")} from the cache`, () => [chart("From the cache", fromCache)]) : "");
  });
}

// Navigation and filters

const OTHER_VIEWS = Object.assign(Object.create(null), {
  timeline: { title: "Timeline", content: timelineView },
  builds: { title: "Builds", content: buildsView },
  ...data.since && { changes: { title: "Changes", content: changesView } },
});
let last = "";

function route(event) {
  const [view, ...path] = location.hash.slice(1).split("/");
  let name = path.join("/");
  try {
    name = decodeURIComponent(name);
  } catch {
    name = "";
  }
  const image = view === "image" && byName.get(name);
  const other = OTHER_VIEWS[view];
  const title = image ? image.name : other ? other.title : "Images";
  fleet.hidden = Boolean(image || other);
  detail.hidden = !fleet.hidden;
  document.title = `${title} - Fleet report`;
  for (const each of document.querySelectorAll("nav a")) {
    const isCurrent = each.hash === (other ? `#${view}` : "#fleet");
    if (isCurrent) each.setAttribute("aria-current", image ? "true" : "page");
    else each.removeAttribute("aria-current");
  }
  detail.replaceChildren();
  if (!detail.hidden) {
    const heading = h("h2", { tabindex: -1 }, title);
    detail.append(heading, ...(image ? imageView(image) : other.content()).filter(Boolean));
    scrollTo(0, 0);
    if (event) heading.focus({ preventScroll: true });
  } else if (event) {
    const row = rows[data.images.findIndex((each) => each.name === last)];
    (row && !row.hidden ? row.querySelector("a") : document.getElementById("fleet-title")).focus();
  }
  last = image ? image.name : "";
}

function filter() {
  const wanted = [...new FormData(form)].filter(([, value]) => value);
  const fits = (image, [key, value]) => {
    if (key === "name") return image.name.includes(value.trim().toLowerCase());
    return key === "instance" ? image.instances.includes(Number(value)) : image.facets[key] === value;
  };
  let shown = 0;
  rows.forEach((row, index) => {
    row.hidden = !wanted.every((pair) => fits(data.images[index], pair));
    shown += !row.hidden;
  });
  const text = wanted.length ? `${shown} of ${count(rows.length, "image")}` : count(rows.length, "image");
  document.getElementById("count").textContent = text;
}

filters.hidden = false;
filters.open = !matchMedia("(max-width: 40rem)").matches;
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filter));
addEventListener("hashchange", route);
filter();
route();
