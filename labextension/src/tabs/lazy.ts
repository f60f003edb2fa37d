/** Tabs whose code is fetched when the first of them is opened. */
import { h, setText } from '../dom/dom.js';
import type { IViewState } from '../model/state.js';
import type { ITrans } from '../model/trans.js';
import type { IPanel, ITab, ITabContext } from './tab.js';

export type MakeTabs = (context: ITabContext) => ITab[];
/** Fetches the code; rejects with a message for the user. */
export type LoadTabs = () => Promise<MakeTabs>;

export class LazyTabs {
  constructor(
    private readonly _context: ITabContext,
    private readonly _load: LoadTabs
  ) {}

  /** Returns one of the tabs; its panel is empty until the code is loaded. */
  tab(id: string, label: string): ITab {
    const { trans } = this._context.requests;
    return {
      id,
      label,
      open: host => new LazyPanel(host, trans, async () => (await this._tabs()).get(id))
    };
  }

  private async _tabs(): Promise<Map<string, ITab>> {
    if (this._made === undefined) {
      const make = await this._load();
      this._made ??= new Map(make(this._context).map(tab => [tab.id, tab]));
    }
    return this._made;
  }

  private _made: Map<string, ITab> | undefined;
}

class LazyPanel implements IPanel {
  constructor(
    private readonly _host: HTMLElement,
    private readonly _trans: ITrans,
    private readonly _find: () => Promise<ITab | undefined>
  ) {
    _host.append(this._said);
  }

  update(state: IViewState): void {
    this._state = state;
    this._panel?.update?.(state);
  }

  setShown(isShown: boolean): void {
    this._isShown = isShown;
    if (this._panel !== undefined) {
      this._panel.setShown?.(isShown);
    } else if (isShown && !this._isLoading) {
      void this._open();
    }
  }

  restyle(): void {
    this._panel?.restyle?.();
  }

  dispose(): void {
    this._isOver = true;
    this._panel?.dispose();
  }

  private async _open(): Promise<void> {
    this._isLoading = true;
    setText(this._said, this._trans.__('Fetching this tab …'));
    try {
      const tab = await this._find();
      if (!this._isOver) {
        this._said.remove();
        this._panel = tab?.open(this._host);
        this._panel?.setShown?.(this._isShown);
        if (this._state !== undefined) {
          this._panel?.update?.(this._state);
        }
      }
    } catch (error) {
      setText(this._said, error instanceof Error ? error.message : String(error));
    } finally {
      this._isLoading = false;
    }
  }

  private readonly _said = h('p.det-quiet', { role: 'status' });
  private _panel: IPanel | undefined;
  private _state: IViewState | undefined;
  private _isShown = false;
  private _isLoading = false;
  private _isOver = false;
}
