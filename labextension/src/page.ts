/** Shows the view in a file of `det e export-html`: the widget, with a model that is in the page. */
import { answerOf, type IPageData, type IQuestion } from './pageanswers.js';

type Listener = (value?: unknown) => void;

interface IWidget {
  default: { render(options: { model: PageModel; el: HTMLElement }): void };
}

/** What the widget uses of a model, without a kernel. */
class PageModel {
  constructor(private readonly _data: IPageData) {
    this._traits = {
      key: '',
      document: { version: 1, state: _data.state },
      patch: { since: 1, operations: [] },
      chosen: null,
      settings: {}
    };
  }

  readonly get = (name: string): unknown => this._traits[name];

  readonly set = (name: string, value: unknown): void => {
    this._put(name, value);
    if (name === 'chosen') {
      this._put('patch', { since: 1, operations: this._data.chosen[String(value)] ?? [] });
    }
  };

  readonly save_changes = (): void => undefined;

  readonly on = (event: string, listener: Listener): void => {
    this._listeners.set(event, [...(this._listeners.get(event) ?? []), listener]);
  };

  readonly off = (event: string, listener: Listener): void => {
    const others = this._listeners.get(event)?.filter(one => one !== listener);
    this._listeners.set(event, others ?? []);
  };

  readonly send = (question: IQuestion): void =>
    queueMicrotask(() => this._emit('msg:custom', answerOf(this._data, question)));

  private _put(name: string, value: unknown): void {
    this._traits[name] = value;
    this._emit(`change:${name}`);
  }

  private _emit(event: string, value?: unknown): void {
    this._listeners.get(event)?.forEach(listener => listener(value));
  }

  private readonly _traits: Record<string, unknown>;
  private readonly _listeners = new Map<string, Listener[]>();
}

async function show(): Promise<void> {
  const data = JSON.parse(document.getElementById('det-data')?.textContent ?? '') as IPageData;
  const now = data.state.as_of * 1000;
  Date.now = () => now; // durations of what ran then do not grow
  const url = URL.createObjectURL(new Blob([data.widget], { type: 'text/javascript' }));
  const widget = (await import(/* @vite-ignore */ url)) as IWidget;
  const el = document.getElementById('det-page') as HTMLElement;
  widget.default.render({ model: new PageModel(data), el });
}

void show();
