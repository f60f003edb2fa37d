/** The panel on the left: its sections, how they share its height, and what of them is kept. */
import { SidePanel } from '@jupyterlab/ui-components';
import { MessageLoop } from '@lumino/messaging';
import { AccordionLayout, AccordionPanel, Panel, Widget } from '@lumino/widgets';

import { frames } from '../../dom/frames.js';
import { LinkBanner } from '../connection/linkbanner.js';
import type { IDetJupyter } from '../tokens.js';
import type { Memory } from './sidebarstate.js';
import type { Section } from './sidebarsection.js';
import { shareByChoice, shareByNeed } from './sharing.js';

const LEAST = 40; // pixels of an open section that shows more than its header
const STILL_MS = 700; // a pointer that has not moved for so long aims at no row

export class SidebarPanel extends SidePanel {
  /**
   * @param _sections - From top to bottom; the last one is closed at first.
   * @param _rest - The place of the one that gets the height that no other needs.
   */
  constructor(
    det: IDetJupyter,
    private readonly _sections: readonly Section[],
    private readonly _rest: number,
    private readonly _memory: Memory
  ) {
    super({ header: new Panel() });
    if (!(this.content instanceof AccordionPanel)) {
      throw new Error('a SidePanel has another content than it had');
    }
    this._accordion = this.content;
    this.id = 'det-jupyter-sidebar';
    this.addClass('jp-DetSidebar');
    this._banner = new LinkBanner(det);
    const banner = new Widget({ node: this._banner.node });
    this.header.addWidget(banner);
    // The layout of a SidePanel does not hear of it when its header grows or shrinks.
    const { UnknownSize } = Widget.ResizeMessage;
    this._resized = new ResizeObserver(() => {
      MessageLoop.postMessage(this._accordion, UnknownSize);
      this.share();
    });
    this._resized.observe(banner.node);
    this._resized.observe(this._accordion.node);
    _sections.forEach(section => {
      this.addWidget(section);
      section.onNeed = () => frames.ask(this._shareSoon);
    });
    this._accordion.collapse(_sections.length - 1);
    this._listen();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      document.removeEventListener('visibilitychange', this._onVisibility);
      clearTimeout(this._waiting);
      [this._share, this._shareSoon].forEach(draw => frames.drop(draw));
      this._resized.disconnect();
      this._banner.dispose();
      this._memory.dispose();
      super.dispose();
    }
  }

  /** Say beside the title of a section how many are in it, and in a tooltip how many of what. */
  setCount(section: Section, text: string, tooltip = ''): void {
    section.setCount(this._accordion.titles[this._sections.indexOf(section)], text, tooltip);
  }

  /** Open the sections as they were; from now on, changes are kept. */
  restore(): void {
    const { open } = this._memory.kept;
    this._sections.forEach((_, place) => {
      if (open[place] === false) {
        this._accordion.collapse(place);
      } else {
        this._accordion.expand(place);
      }
    });
    this._accordion.expansionToggled.connect(this._onToggled, this);
    this._accordion.handleMoved.connect(this._onMoved, this);
    this.share();
  }

  /** Have the sections share the height anew, in the next frame. */
  share(): void {
    frames.ask(this._share);
  }

  protected override onAfterShow(): void {
    this._look();
    this.share();
  }

  protected override onAfterHide(): void {
    this._look();
  }

  private _listen(): void {
    document.addEventListener('visibilitychange', this._onVisibility);
    const { node } = this._accordion;
    const note = (): void => {
      this._movedAt = performance.now();
    };
    node.addEventListener('pointermove', note, { passive: true });
    node.addEventListener('pointerdown', note, { passive: true });
    node.addEventListener('dblclick', ({ target }) => {
      if (target instanceof Element && target.closest('.lm-SplitPanel-handle') !== null) {
        this._memory.keep({ chosen: [] });
        this.share();
      }
    });
  }

  /** Rows do not move below a pointer that moves: a click must not meet another one. */
  private readonly _shareSoon = (): void => {
    const wait = this._movedAt + STILL_MS - performance.now();
    clearTimeout(this._waiting);
    if (wait > 0) {
      this._waiting = setTimeout(this._shareSoon, wait);
    } else {
      this._share();
    }
  };

  private readonly _share = (): void => {
    if (!this.isVisible || this.isDisposed) {
      return;
    }
    const { layout, node, spacing } = this._accordion;
    const titles = layout instanceof AccordionLayout ? layout.titleSpace : 0;
    const open = this._sections.filter(({ isHidden }) => !isHidden).length;
    const fixed = titles * this._sections.length + spacing * Math.max(0, open - 1);
    const needs = this._sections.map(({ isHidden, need }) =>
      isHidden || need === 0 ? 0 : Math.max(LEAST, need)
    );
    const space = Math.max(1, node.clientHeight - fixed);
    const { chosen } = this._memory.kept;
    const sizes =
      chosen.length === needs.length
        ? shareByChoice(needs, space, chosen)
        : shareByNeed(needs, space, this._rest);
    const rounded = JSON.stringify([space, ...sizes].map(Math.round));
    if (rounded !== this._shared) {
      this._shared = rounded;
      // The least height of a section that shows only its header is another. At once: a fit that
      // comes after the sizes makes the old height of a section the one that it asks for.
      MessageLoop.sendMessage(this._accordion, Widget.Msg.FitRequest);
      this._accordion.setRelativeSizes(sizes);
    }
  };

  private _onToggled(): void {
    this._memory.keep({ open: this._sections.map(section => !section.isHidden) });
    this._shared = '';
    this.share();
  }

  private _onMoved(): void {
    const sizes = this._accordion.relativeSizes();
    const { chosen } = this._memory.kept;
    this._memory.keep({ chosen: sizes.map((size, place) => size || (chosen[place] ?? 0)) });
    this._shared = '';
  }

  private _look(): void {
    this._sections.forEach(section => section.look());
  }

  private readonly _onVisibility = (): void => this._look();
  private readonly _accordion: AccordionPanel;
  private readonly _banner: LinkBanner;
  private readonly _resized: ResizeObserver;
  private _movedAt = -STILL_MS;
  private _waiting: ReturnType<typeof setTimeout> | undefined;
  private _shared = '';
}
