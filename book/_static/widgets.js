/* Show the widgets of a page with no kernel and no network.

The widgets' own front end comes with ipywidgets as a module for the classic notebook (widgetsnbextension). This
page plays the part of such a notebook: it answers what the module asks of its host, hands it the state that the
notebook stored, and gives each widget its place on the page. What widgets do among themselves (jslink) works;
what asks Python stays as it was stored. */
(() => {
  "use strict";
  const VIEW = "application/vnd.jupyter.widget-view+json";
  const STATE = "application/vnd.jupyter.widget-state+json";
  const frontEnd = new URL("../widgets/extension.js", document.currentScript.src);
  const nothing = () => {};

  const stored = (kind, root = document) =>
    [...root.querySelectorAll(`script[type="${kind}"]`)].map((script) => [script, JSON.parse(script.textContent)]);

  /* One output of a cell, in the best form that a page can show. */
  function shown({ data = {}, text, traceback }) {
    const asText = (value) => (Array.isArray(value) ? value.join("") : value);
    const node = document.createElement("div");
    if (data["image/png"]) {
      const picture = document.createElement("img");
      picture.src = `data:image/png;base64,${asText(data["image/png"])}`;
      picture.alt = asText(data["text/plain"] || "");
      node.append(picture);
    } else if (data["text/html"]) {
      node.innerHTML = asText(data["text/html"]);
    } else {
      const lines = document.createElement("pre");
      lines.textContent = asText(text || data["text/plain"] || traceback || "");
      node.append(lines);
    }
    return node;
  }

  /* What a classic notebook calls an output area: the module asks for one inside each Output widget. */
  class OutputArea {
    constructor({ selector }) {
      this.element = selector;
    }
    clear_output() {
      this.element.replaceChildren();
    }
    fromJSON(outputs) {
      this.element.append(...outputs.map(shown));
    }
    toJSON() {
      return [];
    }
    register_mime_type(mime, append) {
      OutputArea.append = append;
    }
  }

  function host(state, whenReady) {
    const actions = { register: nothing, get: () => ({ handler: nothing }) };
    const keyboard_manager = { register_events: nothing, actions };
    const kernel = {
      is_connected: () => true,
      comm_info: (target, answer) => answer({ content: { comms: {} } }),
      set_callbacks_for_msg: nothing,
      output_callback_overrides_push: nothing,
      output_callback_overrides_pop: nothing,
      comm_manager: { register_target: nothing, register_comm: nothing },
    };
    kernel.comm_manager.kernel = kernel;
    const notebook = {
      kernel,
      keyboard_manager,
      metadata: { widgets: { [STATE]: state } },
      events: { on: nothing },
      container: { on: nothing },
      get_cells: () => (whenReady(), []), // asked for when all models are made
    };
    return {
      version: "6.5.0",
      notebook,
      notification_area: { widget: nothing },
      menubar: { actions },
    };
  }

  /* A row of buttons of which one is pressed says so to who cannot see it. */
  function name(place) {
    for (const group of place.querySelectorAll(".widget-toggle-buttons")) {
      group.setAttribute("role", "group");
      group.setAttribute("aria-label", "Choose what is shown below");
      for (const button of group.querySelectorAll("button")) {
        button.setAttribute("aria-pressed", button.classList.contains("mod-active"));
      }
    }
  }

  function start() {
    const [saved] = stored(STATE);
    if (!saved) return;
    const jupyter = host(saved[1], () => {
      for (const [script, view] of stored(VIEW)) {
        const place = document.createElement("div");
        const area = {
          keyboard_manager: jupyter.notebook.keyboard_manager,
          create_output_subarea: () => [place],
          handle_output: nothing,
          handle_clear_output: nothing,
        };
        script.replaceWith(place);
        const changes = { childList: true, subtree: true, attributeFilter: ["class"] };
        new MutationObserver(() => name(place)).observe(place, changes);
        OutputArea.append.call(area, view, {}, { append: nothing });
      }
    });
    const modules = {
      "base/js/namespace": jupyter,
      "base/js/events": jupyter.notebook.events,
      "notebook/js/outputarea": { OutputArea },
    };
    /* The module writes itself into the notebook's menu; give it one that nobody sees. */
    const menu = document.createElement("template");
    menu.innerHTML = '<ul hidden><li><ul id="help_menu"></ul></li></ul>';
    document.body.append(menu.content);

    /* It sets formulas by a name of MathJax 2. */
    if (window.MathJax) window.MathJax.Hub = { Queue: ([, , node]) => window.MathJax.typesetPromise([node]) };

    window.Jupyter = jupyter;
    window.requirejs = (names, use) => Promise.resolve().then(() => use(...names.map((name) => modules[name])));
    window.requirejs.config = nothing;
    window.define = (names, make) => make({ uri: frontEnd.href }).load_ipython_extension();
    const script = document.createElement("script");
    script.src = frontEnd.href;
    script.onload = () => delete window.define;
    document.head.append(script);
  }

  document.addEventListener("DOMContentLoaded", start);
})();
