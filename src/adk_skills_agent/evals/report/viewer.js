
"use strict";
(() => {
  const PAGE = 100;
  const byId = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en");
  const seconds = (value) =>
    value == null ? "-" : value < 1 ? `${Math.round(value * 1000)} ms` : value < 120 ? `${value.toFixed(1)} s` : `${Math.round(value / 60)} min`;
  const unpacked = new Map();
  let trials = [], shown = [], visible = PAGE, current = null, asked = 0;

  /* Text reaches the page only as text nodes: nothing an agent, a tool or a judge wrote is ever parsed as HTML. */
  function make(tag, properties, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(properties || {})) {
      if (value == null || value === false) continue;
      if (name === "class") node.className = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
    return node;
  }

  function data(name) {
    if (!unpacked.has(name)) unpacked.set(name, unpack(byId(`data-${name}`)));
    return unpacked.get(name);
  }

  async function unpack(node) {
    const bytes = Uint8Array.from(atob(node.textContent), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  const trialOf = ([of, name, arm, run, kind, passed, score, time, tokens, calls, error, line, part, at]) => ({
    of, name, arm, run, kind, passed, score, time, tokens, calls, error, line, part, at,
    hash: `#trial/${of}/${[name, arm].map(encodeURIComponent).join("/")}/${run}`,
  });
  /* Without the skill a trial is expected not to pass: it is what the others are measured against. */
  const compared = new Map();
  function isBaseline(trial) {
    if (!compared.has(trial.of)) compared.set(trial.of, trials.some((one) => one.of === trial.of && one.arm !== "without_skill"));
    return trial.arm === "without_skill" && compared.get(trial.of);
  }
  const state = (trial) => {
    if (trial.passed == null) return ["none", "–", "not measured"];
    if (trial.passed) return ["good", "✓", "passed"];
    return isBaseline(trial) ? ["none", "○", "not passed (baseline)"] : ["bad", "✗", "failed"];
  };

  /* --- the list ------------------------------------------------------------------------------------------------- */

  function chosen(id) {
    const node = byId(id);
    return node ? node.value : "";
  }

  function fill(id, values, all) {
    byId(id).replaceChildren(make("option", { value: "" }, all), ...values.map((value) => make("option", { value: `=${value}` }, value)));
  }

  function filter() {
    const of = Number(chosen("of") || 0), name = chosen("case"), arm = chosen("arm"), result = chosen("result");
    shown = trials.filter((trial) =>
      trial.of === of && (!name || `=${trial.name}` === name) && (!arm || `=${trial.arm}` === arm) &&
      (!result || state(trial)[2] === { failed: "failed", passed: "passed", baseline: "not passed (baseline)", unmeasured: "not measured" }[result]));
    visible = PAGE;
    list();
  }

  function list(focusAt) {
    const part = shown.slice(0, visible);
    const items = part.map((trial) => {
      const [kind, sign, word] = state(trial);
      return make("button", {
        type: "button", "aria-current": trial === current ? "true" : null, "data-hash": trial.hash,
        onclick: () => { location.hash = trial.hash; if (trial === current) open(trial, true); },
      },
        make("span", { class: kind, "aria-label": word, role: "img" }, sign),
        make("span", { class: "case" }, trial.name),
        make("small", {}, `${trial.arm}, run ${trial.run} · ${number(trial.tokens)} tokens · ${seconds(trial.time)}${trial.error ? ` · ${trial.error} error` : ""}`));
    });
    const left = shown.length - part.length;
    if (left > 0) {
      items.push(make("button", {
        type: "button", class: "more",
        onclick: () => { const at = visible; visible += PAGE; list(at); },
      }, `Show ${Math.min(PAGE, left)} more of ${number(left)}`));
    }
    byId("list").replaceChildren(...items);
    const failed = shown.filter((trial) => state(trial)[2] === "failed").length;
    byId("count").textContent = `${number(shown.length)} trials, ${number(failed)} failed.`;
    if (focusAt != null && items[focusAt]) items[focusAt].focus();
  }

  byId("list").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!step) return;
    const buttons = [...byId("list").children];
    const at = Math.max(0, Math.min(buttons.length - 1, buttons.indexOf(document.activeElement) + step));
    buttons[at].focus();
    event.preventDefault();
  });

  /* --- one trial ------------------------------------------------------------------------------------------------ */

  function texts(shared, trial) {
    const where = `trials.jsonl, line ${trial.line}`;
    return (text) => {
      const value = typeof text === "number" ? shared[text] : text;
      if (typeof value === "string") return [value];
      const [start, left, end] = value;
      return [start, make("span", { class: "cut" }, `${number(left)} characters are left out here; whole in ${where}`), end];
    };
  }

  const empty = (text) => text === "" || text == null;
  const short = (parts) => parts.length === 1 && parts[0].length <= 100 && !parts[0].includes("\n");
  const block = (parts, kind) => make("pre", { tabindex: "0", class: kind }, parts);

  function fields(pairs, text) {
    return make("dl", {}, pairs.map(([key, value]) => {
      const parts = empty(value) ? [] : text(value);
      const wide = parts.length && !short(parts) ? "wide-value" : null;
      return [make("dt", { class: wide }, key), make("dd", { class: wide }, !parts.length ? make("span", { class: "none" }, "(empty)")
        : !wide ? make("code", { class: key === "stderr" ? "bad" : null }, parts) : block(parts, key === "stderr" ? "stderr" : null))];
    }));
  }

  function callBox(call, text) {
    const script = call.response && call.response.some(([key]) => key === "stdout" || key === "stderr");
    return make("details", { class: "call", open: call.failed || script },
      make("summary", {}, make("code", {}, call.name), call.about ? ` ${call.about} ` : " ",
        make("span", { class: call.failed ? "bad" : call.response ? "good" : "none" }, call.failed ? "failed" : call.response ? "answered" : "no answer")),
      call.args.length ? [make("span", { class: "who" }, "Arguments"), fields(call.args, text)] : null,
      call.response ? [make("span", { class: "who" }, script ? "Script output" : "Answer"), fields(call.response, text)] : null);
  }

  function turnBox(turn, at, text) {
    const facts = [turn.tokens && `${number(turn.tokens.total)} tokens (${number(turn.tokens.prompt)} in, ${number(turn.tokens.output)} out, ${number(turn.tokens.cached)} cached)`,
      turn.seconds != null && seconds(turn.seconds)].filter(Boolean).join(" · ");
    return make("section", { class: "turn", "aria-label": `Turn ${at + 1}` },
      make("span", { class: "facts" }, `Turn ${at + 1}${facts ? ` · ${facts}` : ""}`),
      make("div", { class: "said user" }, make("span", { class: "who" }, "User"), text(turn.user)),
      turn.calls.map((call) => callBox(call, text)),
      empty(turn.error) ? null : make("div", { class: "problem" }, text(turn.error)),
      empty(turn.final) ? make("p", { class: "note" }, "No answer in words.") : make("div", { class: "said agent" }, make("span", { class: "who" }, "Agent"), text(turn.final)));
  }

  const look = (passed) => (passed == null ? ["", "none"] : passed ? ["met", "good"] : ["missed", "bad"]);

  function scoreBox(score, text) {
    const value = (one) => (one == null ? "not measured" : one.toFixed(2));
    const [edge, kind] = look(score.passed);
    return make("div", { class: `verdict ${edge}` },
      make("b", { class: kind }, value(score.value)), ` ${score.metric.replace(/_score$/, "").replaceAll("_", " ")}`,
      make("span", { class: "facts" }, score.threshold == null ? "" : ` · ${value(score.threshold)} needed`, score.outcome ? " · of the outcome" : "",
        score.turns.length > 1 ? ` · by turn ${score.turns.map(value).join(", ")}` : ""),
      empty(score.detail) ? null : make("div", { class: "facts" }, text(score.detail)));
  }

  function verdictBox(verdict, text) {
    const sure = verdict.samples > 1 ? ` · ${Math.round(100 * (verdict.agreement ?? 0))}% of ${verdict.samples} samples agree` : "";
    const [edge, kind] = look(Boolean(verdict.met));
    return make("div", { class: `verdict ${edge}` },
      make("b", { class: kind }, verdict.met ? "holds" : "does not hold"),
      make("span", { class: "facts" }, ` · ${verdict.rubric} · turn ${verdict.turn}${sure}`),
      make("div", {}, text(verdict.text)),
      empty(verdict.rationale) ? null : make("div", { class: "facts" }, "Judge: ", text(verdict.rationale)));
  }

  function fileBox(file, text) {
    const size = `${number(file.size)} bytes`;
    return file.text == null
      ? make("p", {}, make("code", {}, file.name), ` ${size}; its content is no text, or was too large to keep`)
      : make("details", { class: "call" }, make("summary", {}, make("code", {}, file.name), ` ${size}`), block(text(file.text)));
  }

  function head(trial) {
    const [kind, sign, word] = state(trial);
    const at = shown.indexOf(trial);
    const go = (name, to) => make("button", { type: "button", disabled: !to, onclick: () => { location.hash = to.hash; } }, name);
    const twin = trials.find((one) => one.of !== trial.of && one.name === trial.name && one.arm === trial.arm && one.run === trial.run);
    return [
      make("h3", {}, trial.name),
      make("div", {}, make("span", { class: `badge ${kind}` }, `${sign} ${word}`), make("span", { class: "badge" }, trial.arm),
        make("span", { class: "badge" }, `run ${trial.run}`), make("span", { class: "badge" }, trial.kind),
        trial.of ? make("span", { class: "badge" }, "baseline") : null),
      make("div", { class: "bar-of" },
        make("button", { type: "button", id: "back", onclick: back }, "To the list"),
        go("Previous", at > 0 ? shown[at - 1] : null), go("Next", at >= 0 ? shown[at + 1] : null),
        twin ? go(trial.of ? "Same in this run" : "Same in the baseline", twin) : null),
      make("p", { class: "facts" }, [trial.score != null && `score ${trial.score.toFixed(2)}`, `${number(trial.tokens)} tokens`, seconds(trial.time),
        `${trial.calls} tool calls`].filter(Boolean).join(" · ")),
    ];
  }

  function body(trial, detail, text) {
    const money = (name, usage, cost) => usage && usage.total ? `${name} ${number(usage.total)} tokens${cost ? `, $${cost.toFixed(4)}` : ""}` : null;
    const facts = [detail.source, detail.started && detail.started.replace("T", " ").replace(/\.\d+Z$/, " UTC"), money("agent", detail.usage, detail.cost), money("judge", detail.judgeUsage, detail.judgeCost),
      detail.overhead != null && `${seconds(detail.overhead)} overhead`, `trials.jsonl, line ${trial.line}`].filter(Boolean).join(" · ");
    const skills = (names) => (names.length ? names.join(", ") : "none");
    return [
      make("p", { class: "facts" }, facts),
      make("p", { class: "facts" }, `Skills loaded: ${skills(detail.loaded)}${detail.activated.length ? ` (${skills(detail.activated)} by the user)` : ""} · there: ${skills(detail.available)}`
        + (detail.trigger == null ? "" : ` · ${detail.trigger ? "should" : "should not"} trigger`)),
      detail.error ? make("div", { class: "problem" }, `${detail.error.kind} error: `, text(detail.error.message)) : null,
      make("h3", {}, "Scores"), detail.scores.length ? detail.scores.map((score) => scoreBox(score, text)) : make("p", { class: "note" }, "No criterion was measured."),
      detail.verdicts.length ? [make("h3", {}, "Judge"), detail.verdicts.map((verdict) => verdictBox(verdict, text))] : null,
      make("h3", {}, "Conversation"),
      make("div", { class: "bar-of" }, ["Open all", "Close all"].map((name, at) => make("button", {
        type: "button", onclick: () => byId("trial").querySelectorAll("details").forEach((node) => { node.open = !at; }),
      }, name))),
      detail.turns.length ? detail.turns.map((turn, at) => turnBox(turn, at, text)) : make("p", { class: "note" }, "No turn was recorded."),
      detail.files.length ? [make("h3", {}, "Files"), detail.files.map((file) => fileBox(file, text))] : null,
    ].flat(Infinity);
  }

  async function open(trial, focus) {
    const turn = ++asked;
    current = trial;
    if (!shown.includes(trial)) {
      if (byId("of")) byId("of").value = String(trial.of);
      for (const id of ["case", "arm", "result"]) byId(id).value = "";
      filter();
    }
    const at = shown.indexOf(trial);
    if (at >= visible) { visible = (Math.floor(at / PAGE) + 1) * PAGE; list(); }
    for (const node of byId("list").children) {
      if (node.dataset.hash === trial.hash) { node.setAttribute("aria-current", "true"); reveal(node); } else node.removeAttribute("aria-current");
    }
    let parts;
    if (trial.part < 0) {
      parts = [make("p", { class: "problem" }, `This trace had no room in the page; it is in trials.jsonl, line ${trial.line}.`)];
    } else {
      try {
        const [shared, details] = await Promise.all([data("shared"), data(`part-${trial.part}`)]);
        parts = body(trial, details[trial.at], texts(shared, trial)).filter(Boolean);
      } catch (error) {
        parts = [make("p", { class: "problem" }, `This trace cannot be shown (${error.message}); it is in trials.jsonl, line ${trial.line}.`)];
      }
    }
    if (turn !== asked) return;
    const box = byId("trial");
    box.replaceChildren(...head(trial), ...parts);
    box.dataset.hash = trial.hash;
    if (focus) { box.focus({ preventScroll: true }); box.scrollIntoView({ block: "start" }); }
  }

  /* scrollIntoView would also move the page. */
  function reveal(node) {
    const box = node.parentElement, top = node.offsetTop - box.offsetTop;
    if (top < box.scrollTop || top + node.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 2;
  }

  function back() {
    const node = [...byId("list").children].find((one) => one.dataset.hash === (current && current.hash));
    byId("filters").scrollIntoView({ block: "start" });
    if (node) node.focus();
  }

  byId("trial").addEventListener("keydown", (event) => { if (event.key === "Escape") back(); });

  function follow(focus) {
    const trial = trials.find((one) => one.hash === location.hash);
    if (trial) open(trial, focus);
    return Boolean(trial);
  }

  async function start() {
    trials = (await data("index")).trials.map(trialOf);
    const names = (key) => [...new Set(trials.map((trial) => trial[key]))];
    fill("case", names("name"), "all");
    fill("arm", names("arm"), "all");
    for (const id of ["of", "case", "arm", "result"]) if (byId(id)) byId(id).addEventListener("change", filter);
    for (const node of document.querySelectorAll("button[data-case]")) {
      node.addEventListener("click", () => {
        if (byId("of")) byId("of").value = "0";
        byId("result").value = "";
        byId("case").value = `=${node.dataset.case}`;
        byId("arm").value = `=${node.dataset.arm}`;
        filter();
        if (shown.length) { location.hash = shown[0].hash; open(shown[0], true); }
      });
    }
    addEventListener("hashchange", () => follow(true));
    filter();
    if (!follow(true) && shown.length) open(shown.find((trial) => trial.passed === false) || shown[0], false);
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  }

  start().catch((error) => {
    byId("count").textContent = typeof DecompressionStream === "undefined"
      ? "This browser cannot unpack the traces; take one of 2023 or later. They are in trials.jsonl too."
      : `The traces of this page cannot be read (${error.message}). Make it again: adk-skills report.`;
  });
})();
